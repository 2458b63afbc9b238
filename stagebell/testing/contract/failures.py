"""What a handler raises reaches its caller: class, text and data."""

from __future__ import annotations

from typing import Any

from autogen_core import MessageContext, TopicId

from stagebell.errors import RuntimeNotRunning, StagebellError, Undeliverable, UnknownAgentType
from stagebell.testing.contract.agents import Ask, Doing, Note, agent, echo, host
from stagebell.testing.contract.case import Room, case, raises, start


class OutOfStock(Exception):
    """An application's own exception with data of its own."""

    def __init__(self, item: str, missing: int) -> None:
        super().__init__(f"{missing} of {item} are missing")
        self.item = item
        self.missing = missing


class Broke(StagebellError):
    """Derives from the product's root."""


def raising(error: BaseException) -> Any:
    async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
        raise error

    return ask


class Failures(Room):
    """What a handler raises reaches its caller: class, text and data."""

    @case(
        each=[
            ValueError("wrong"),
            KeyError("missing"),
            ValueError(""),
            RuntimeError(),
            OSError(2, "No such file", "a.txt"),
            TimeoutError("too late"),
            Broke("own"),
        ]
    )
    async def test_the_callers_error_has_the_handlers_class_and_text(self, runtime: Any, error: Any) -> None:
        await host(runtime, "bad", raising(error))
        await start(runtime)
        with raises(Exception) as caught:
            await runtime.send_message(Ask(), agent("bad"))
        assert type(caught.value) is type(error)
        assert str(caught.value) == str(error)

    @case()
    async def test_its_data_comes_along(self, runtime: Any) -> None:
        await host(runtime, "shop", raising(OutOfStock("tea", 3)))
        await start(runtime)
        with raises(OutOfStock, match="3 of tea are missing") as caught:
            await runtime.send_message(Ask(), agent("shop"))
        assert (caught.value.item, caught.value.missing) == ("tea", 3)

    @case()
    async def test_an_error_goes_up_through_every_caller(self, runtime: Any) -> None:
        async def pass_on(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
            return await agent.call("shop")

        async def catch(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            try:
                await agent.call("middle")
            except OutOfStock as error:
                return f"caught: {error}"
            return "nothing raised"

        await host(runtime, "shop", raising(OutOfStock("tea", 1)))
        await host(runtime, "middle", pass_on)
        await host(runtime, "top", catch)
        await start(runtime)
        assert await runtime.send_message(Ask(), agent("top")) == "caught: 1 of tea are missing"

    @case()
    async def test_an_agent_goes_on_after_its_handler_raised(self, runtime: Any) -> None:
        async def sometimes(agent: Doing, message: Ask, ctx: MessageContext) -> str:
            if message.text == "bad":
                raise ValueError("bad")
            return "good"

        await host(runtime, "shaky", sometimes)
        await start(runtime)
        with raises(ValueError, match="bad"):
            await runtime.send_message(Ask(text="bad"), agent("shaky"))
        assert await runtime.send_message(Ask(text="good"), agent("shaky")) == "good"

    @case()
    async def test_a_factory_that_raises_is_the_callers_error(self, runtime: Any) -> None:
        broken = True

        def make() -> Doing:
            if broken:
                raise OutOfStock("agents", 1)
            return Doing(echo)

        await Doing.register(runtime, "made", make)
        await start(runtime)
        with raises(OutOfStock):
            await runtime.send_message(Ask(), agent("made"))
        broken = False
        assert await runtime.send_message(Ask(text="now"), agent("made")) == "now"

    @case(any_object=True)
    async def test_a_reply_that_is_an_exception_is_a_reply(self, runtime: Any) -> None:
        """What a handler returns is never raised."""

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
            return ValueError("returned")

        await host(runtime, "odd", ask)
        await start(runtime)
        assert isinstance(await runtime.send_message(Ask(), agent("odd")), ValueError)

    @case()
    async def test_a_stopped_runtime_refuses_calls_and_publishes(self, runtime: Any) -> None:
        await host(runtime, "echo", echo, topics=("news",))
        await start(runtime)
        await runtime.stop()
        with raises(RuntimeNotRunning, match="start"):
            await runtime.send_message(Ask(), agent("echo"))
        with raises(RuntimeNotRunning, match="start"):
            await runtime.publish_message(Note(), TopicId("news", "d"))

    @case()
    async def test_asking_for_an_agent_of_an_unknown_type_is_an_error(self, runtime: Any) -> None:
        await start(runtime)
        unknown = agent("nobody")
        for asked in (
            runtime.agent_metadata,
            runtime.agent_save_state,
            runtime.try_get_underlying_agent_instance,
        ):
            with raises((UnknownAgentType, Undeliverable)):
                await asked(unknown)
        with raises((UnknownAgentType, Undeliverable)):
            await runtime.get(unknown, lazy=False)
