"""Cancellation of calls."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_core import CancellationToken, MessageContext

from stagebell.testing.contract.agents import Ask, Doing, agent, echo, host
from stagebell.testing.contract.case import Room, case, raises, start
from stagebell.testing.contract.waiting import eventually


class Cancellation(Room):
    """Cancellation of calls."""

    @case()
    async def test_the_handler_gets_the_callers_token_and_the_caller_its_cancellation(self, runtime: Any) -> None:
        token, entered, seen = CancellationToken(), asyncio.Event(), list[Any]()

        async def wait(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            work = asyncio.ensure_future(asyncio.Event().wait())
            ctx.cancellation_token.link_future(work)
            entered.set()
            try:
                await work
            except asyncio.CancelledError:
                seen.append(ctx.cancellation_token.is_cancelled())
                raise

        await host(runtime, "slow", wait)
        await start(runtime)
        call = asyncio.create_task(runtime.send_message(Ask(), agent("slow"), cancellation_token=token))
        await entered.wait()
        token.cancel()
        with raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 5)
        await eventually(lambda: seen)
        assert seen == [True]

    @case()
    async def test_the_caller_of_a_cancelled_call_is_released_while_its_handler_still_runs(self, runtime: Any) -> None:
        token, entered, gate, ended = CancellationToken(), asyncio.Event(), asyncio.Event(), list[Any]()

        async def wait(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            entered.set()
            try:
                await gate.wait()
            finally:
                ended.append(message.text)

        await host(runtime, "slow", wait)
        await start(runtime)
        call = asyncio.create_task(runtime.send_message(Ask(text="x"), agent("slow"), cancellation_token=token))
        await asyncio.wait_for(entered.wait(), 5)
        token.cancel()
        with raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 2)
        assert not ended
        gate.set()
        await eventually(lambda: ended)
        await asyncio.wait_for(runtime.stop_when_idle(), 5)
        assert ended == ["x"]

    @case()
    async def test_a_cancelled_token_is_refused_before_the_handler_runs(self, runtime: Any) -> None:
        token, ran = CancellationToken(), list[Any]()

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            ran.append(message)

        await host(runtime, "never", ask)
        await start(runtime)
        token.cancel()
        with raises(asyncio.CancelledError):
            await runtime.send_message(Ask(), agent("never"), cancellation_token=token)
        await runtime.stop_when_idle()
        assert not ran

    @case()
    async def test_a_call_that_waits_is_cancelled_before_its_handler_runs(self, runtime: Any) -> None:
        token, gate, entered, ran = CancellationToken(), asyncio.Event(), asyncio.Event(), list[Any]()

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            ran.append(message.text)
            entered.set()
            await gate.wait()

        await host(runtime, "busy", ask)
        await start(runtime)
        first = asyncio.create_task(runtime.send_message(Ask(text="first"), agent("busy")))
        await entered.wait()
        second = asyncio.create_task(runtime.send_message(Ask(text="second"), agent("busy"), cancellation_token=token))
        await eventually(lambda: runtime._dispatcher.queued == 1)
        token.cancel()
        with raises(asyncio.CancelledError):
            await asyncio.wait_for(second, 2)
        await eventually(lambda: runtime._dispatcher.queued == 0)
        gate.set()
        await asyncio.wait_for(first, 2)
        await runtime.stop_when_idle()
        assert ran == ["first"]

    @case()
    async def test_calls_of_a_cancelled_turn_are_cancelled_without_passing_the_token_on(self, runtime: Any) -> None:
        token, entered, seen = CancellationToken(), asyncio.Event(), list[Any]()

        async def outer(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
            return await agent.call("inner")

        async def inner(agent: Doing, message: Ask, ctx: MessageContext) -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append(ctx.cancellation_token.is_cancelled())
                raise

        await host(runtime, "inner", inner)
        await host(runtime, "outer", outer)
        await start(runtime)
        call = asyncio.create_task(runtime.send_message(Ask(), agent("outer"), cancellation_token=token))
        await entered.wait()
        token.cancel()
        with raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 5)
        await eventually(lambda: seen)
        assert seen == [True]

    @case()
    async def test_an_agent_goes_on_after_a_turn_was_cancelled(self, runtime: Any) -> None:
        token, entered = CancellationToken(), asyncio.Event()

        async def ask(agent: Doing, message: Ask, ctx: MessageContext) -> Any:
            if message.text == "wait":
                entered.set()
                await asyncio.Event().wait()
            return await echo(agent, message, ctx)

        await host(runtime, "slow", ask)
        await start(runtime)
        call = asyncio.create_task(runtime.send_message(Ask(text="wait"), agent("slow"), cancellation_token=token))
        await entered.wait()
        token.cancel()
        with raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 5)
        assert await asyncio.wait_for(runtime.send_message(Ask(text="next"), agent("slow")), 5) == "next"
