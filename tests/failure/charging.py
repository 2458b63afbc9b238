"""A till whose tools charge a card at a payment service, for workers that die in the middle of that.

The service is a server of its own, in the process of the test. What it does to one request can be bad: it goes away
before it has done anything (`drop`), charges and loses the answer (`lose`), or takes its time (`slow`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Literal, Self

from autogen_core import AgentInstantiationContext, AgentRuntime, MessageContext

from stagebell.tools.agent import ToolAgent
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import Status
from stagebell.tools.tool import tool

Fault = Literal["drop", "lose", "slow"]
SLOW = 0.4  # seconds
TIMEOUT = 0.15  # seconds that a charge has


def _on() -> None:
    """Nothing happens at this step."""


step: Callable[[], None] = _on
"""Called each time that the handler or the tool begins to wait, and each time that it goes on."""


class Counted:
    """Awaits a coroutine and tells of each of its steps."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            try:
                waits_for = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as stop:
                return stop.value
            error = None
            step()
            try:
                yield waits_for
            except BaseException as raised:  # it is for the one who waits
                error = raised
            step()


# -- the tools, one for each way to deal with a call that may have been made


async def _ask(port: int, **request: Any) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ConnectionError("the payment service has not answered")
    answer: dict[str, Any] = json.loads(line)
    return answer


async def _charge(context: ToolContext[int], cents: int, *, once: bool) -> str:
    asking = _ask(context.deps, do="charge", key=context.idempotency_key, cents=cents, once=once)
    return str((await Counted(asking))["said"])


async def ask_status(context: ToolContext[Any]) -> Status:
    """What the service knows of a call."""
    answer = await Counted(_ask(context.deps, do="status", key=context.idempotency_key))
    return Status(answer["kind"], answer.get("said"))


@tool(effects="side", status=ask_status, timeout=TIMEOUT, retries=2)
async def charge_and_ask(context: ToolContext[int], cents: int) -> str:
    """Charge; the service can be asked what became of it."""
    return await _charge(context, cents, once=False)


@tool(effects="idempotent", timeout=TIMEOUT, retries=5)
async def charge_once(context: ToolContext[int], cents: int) -> str:
    """Charge; the service takes a key twice for one charge."""
    return await _charge(context, cents, once=True)


@tool(timeout=TIMEOUT)
async def charge_blindly(context: ToolContext[int], cents: int) -> str:
    """Charge, and say nothing of it."""
    return await _charge(context, cents, once=False)


class Till(ToolAgent[int]):
    """Its key is the port of the service."""

    def __init__(self) -> None:
        port = int(AgentInstantiationContext.current_agent_id().key)
        super().__init__("till", [charge_and_ask, charge_once, charge_blindly], deps=port, errors="return", patience=5)

    async def on_message(self, message: Any, ctx: MessageContext) -> Any:
        return await Counted(super().on_message(message, ctx))


async def till(runtime: AgentRuntime) -> None:
    """A till for each payment service."""
    await Till.register(runtime, "till", Till)


# -- the service


class PaymentService:
    """Charges, and what it remembers of them; `faults` are those of the next charges, one for each request."""

    def __init__(self, *faults: Fault) -> None:
        self.charges: list[int] = []
        self.on_charge: Callable[[], None] = _on
        self.port = 0
        self._faults = deque(faults)
        self._known: dict[str, asyncio.Future[str]] = {}
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            line = await reader.readline()
            if line.endswith(b"\n"):  # else whoever asked has died
                answer = await self._answer(json.loads(line))
                if answer is not None:
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()

    def _answer(self, request: dict[str, Any]) -> Awaitable[dict[str, str] | None]:
        if request["do"] == "status":
            return self._status(request["key"])
        return self._charge(request, self._faults.popleft() if self._faults else None)

    async def _charge(self, request: dict[str, Any], fault: Fault | None) -> dict[str, str] | None:
        key = request["key"]
        if fault == "drop":
            return None
        if request["once"] and key in self._known:
            return {"said": await asyncio.shield(self._known[key])}
        known = self._known[key] = asyncio.get_running_loop().create_future()
        if fault == "slow":
            await asyncio.sleep(SLOW)
        self.charges.append(request["cents"])
        self.on_charge()
        known.set_result(f"charged {request['cents']}")
        return None if fault == "lose" else {"said": known.result()}

    async def _status(self, key: str) -> dict[str, str]:
        known = self._known.get(key)
        if known is None:
            return {"kind": "absent"}
        return {"kind": "succeeded", "said": known.result()} if known.done() else {"kind": "processing"}
