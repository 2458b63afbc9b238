"""A tool charges a card, and its worker dies at each script and at each await: one charge, and the right answer.

A tool that has declared nothing is never run a second time: at most one charge, and an answer that says what is not
known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pytest
from autogen_core import AgentId, FunctionCall
from autogen_core.models import FunctionExecutionResult

from stagebell import Publisher, RedisRuntime
from stagebell.testing import FaultyConnection
from tests.failure.boundaries import boundaries_of
from tests.failure.charging import Fault, PaymentService, till
from tests.failure.crashes import Moment, Victim
from tests.failure.view import View
from tests.support.servers import Server, available_kinds
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

AT_ONCE = 4
LEASE = 0.6
CENTS = 500
TOOLS = ("charge_and_ask", "charge_once", "charge_blindly")
MOMENTS: tuple[Moment, ...] = ("before", "after", "frozen", "step")
HALVES = list(zip(cycle(available_kinds()), MOMENTS, strict=False))
LEAST: dict[str, int] = {"before": 4, "after": 4, "frozen": 4, "step": 8}
"""So many boundaries there are in a turn at least: begin, intent, result and commit; and what the tool awaits."""


class Trial:
    """One call in a namespace of its own, with a worker that dies at its N-th boundary."""

    def __init__(self, tool: str, url: str, view: View, moment: Moment, number: int) -> None:
        self._tool = tool
        self._url = url
        self._view = view
        self._options: dict[str, Any] = {"namespace": view.namespace, "partitions": 1, "lease": LEASE}
        self._victim = Victim("till", moment, number, url, **self._options)

    async def run(self, *faults: Fault) -> bool:
        """Returns False when the worker had fewer boundaries, so that it lived."""
        try:
            await self._victim.ready()
            async with (
                PaymentService(*faults) as service,
                Publisher(self._url, namespace=self._view.namespace) as publisher,
            ):
                publisher.register(FunctionExecutionResult)
                asked = asyncio.ensure_future(charge(publisher, self._tool, service))
                await eventually(lambda: self._victim.stopped or (asked.done() and self._rests()), 20)
                died = self._victim.frozen or await self._victim.stop()
                if died:
                    await self._take_over(asked)
                check(self._tool, await asked, service, lived=not died)
                if self._victim.frozen:
                    self._victim.thaw()
                    await self._victim.stop()
                    check(self._tool, await asked, service, lived=False)
            assert not self._view.left_behind()
            assert not self._view.against_the_list()
            assert not self._view.dead_letters()
            return died
        finally:
            self._victim.kill()

    async def _take_over(self, asked: asyncio.Future[Any]) -> None:
        successor = RedisRuntime(self._url, **self._options)
        await till(successor)
        async with successor:
            await eventually(lambda: asked.done() and self._rests(), 20)

    def _rests(self) -> bool:
        return self._view.backlog() == 0 and not self._view.left_behind()


async def charge(runtime: Any, tool: str, service: PaymentService) -> FunctionExecutionResult:
    """Call the tool, as an agent or a client does."""
    message = FunctionCall(id="c1", name=tool, arguments=f'{{"cents": {CENTS}}}')
    agent = AgentId("till", str(service.port))
    call = runtime.call if isinstance(runtime, Publisher) else runtime.send_message
    result: FunctionExecutionResult = await call(message, agent)
    return result


def check(tool: str, result: FunctionExecutionResult, service: PaymentService, *, lived: bool) -> None:
    """The one end that it may have, or for a tool that has declared nothing, one of two."""
    if tool == "charge_blindly" and not lived and result.is_error:
        assert "it may have had its effect" in result.content
        assert len(service.charges) <= 1
    else:
        assert (result.content, result.is_error) == (f"charged {CENTS}", False)
        assert service.charges == [CENTS]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(("server", "moment"), HALVES, indirect=["server"])
async def test_a_worker_that_dies_anywhere_in_a_charge_leaves_one(
    server: Server, namespace: str, tool: str, moment: Moment
) -> None:
    async def trial(view: View, number: int) -> bool:
        return await Trial(tool, server.url, view, moment, number).run()

    assert await boundaries_of(server, namespace, trial, at_once=AT_ONCE) >= LEAST[moment]


# -- what may go wrong between the worker and the service, while the worker lives

FAULTS: dict[str, Sequence[Fault]] = {
    "not sent": ("drop",),
    "never sent at first": ("drop", "drop"),
    "sent, and the answer lost": ("lose",),
    "still processing": ("slow",),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("cause", FAULTS)
async def test_an_answer_that_does_not_come_leads_to_one_charge(
    redis_url: str, namespace: str, tool: str, cause: str
) -> None:
    async with PaymentService(*FAULTS[cause]) as service, RedisRuntime(redis_url, namespace=namespace) as runtime:
        await till(runtime)
        result = await asyncio.wait_for(charge(runtime, tool, service), 20)
        if tool == "charge_blindly":
            assert result.is_error
            assert "whether it had its effect is not known" in result.content
        else:
            assert (result.content, result.is_error) == (f"charged {CENTS}", False)
    assert service.charges == ([] if tool == "charge_blindly" and "drop" in FAULTS[cause] else [CENTS])


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("trouble", ["cut", "replies lost"])
async def test_done_and_the_line_to_the_server_breaks_before_that_is_noted(
    redis_url: str, namespace: str, tool: str, trouble: str
) -> None:
    """Charged, and the result cannot be stored, or nobody hears that it was."""
    loop = asyncio.get_running_loop()
    async with (
        PaymentService() as service,
        FaultyConnection(redis_url) as line,
        RedisRuntime(line.url, namespace=namespace) as runtime,
        Publisher(redis_url, namespace=namespace) as publisher,
    ):

        def broken() -> None:
            line.cut() if trouble == "cut" else line.lose_replies()
            loop.call_later(0.2, line.heal)

        service.on_charge = broken
        publisher.register(FunctionExecutionResult)
        await till(runtime)
        check(tool, await asyncio.wait_for(charge(publisher, tool, service), 20), service, lived=True)
        assert line.faults
