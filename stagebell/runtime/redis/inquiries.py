"""Find circles of calls: who asks, how often, and how inquiries travel (what they follow is said in `circles`).

A call from a turn that waits in a mailbox behind a turn with an open call asks: first after `_PERIOD`, then after
twice the time before, up to `_LONGEST_PAUSE`, and anew when another turn has come before it. A call for an agent that
forbids it to be called back asks at once. An inquiry is a hint in the bell of the owner of the next call, and may be
lost. It ends where a call is not in memory or its turn has no call open, so on a healthy system it takes a step or two.

Not followed: what was sent outside of the chain of calls (from a task with a context of its own), and a message that
is not read yet since its partition has more messages than `read_credit`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio import Task
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from stagebell.errors import CallCycleError
from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.turn import Turn
from stagebell.runtime.redis.circles import Awaited, Circle, Found, Inquiry, Place, follow
from stagebell.runtime.redis.ears import Fields
from stagebell.runtime.redis.keys import leased_keys
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.services import Services
from stagebell.runtime.redis.turns import DurableTurn

logger = logging.getLogger("stagebell")

_PERIOD = 0.1
_LONGEST_PAUSE = 2.0
_MOST_ASKERS = 64  # in one period; the others are asked for in the next
_MOST_ONWARD = 512  # in one period

INQUIRY: Final = "inq"
CIRCLE: Final = "circle"


class _Waiting:
    """How long a call has waited behind one turn."""

    __slots__ = ("behind", "due", "pause")

    def __init__(self, behind: Turn, now: float) -> None:
        self.behind = behind
        self.pause = _PERIOD
        self.due = now + _PERIOD / 2  # so that the next look finds it due


class Inquiries:
    """The circles that one process looks for."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._task: Task[None] | None = None
        self._waiting: dict[str, _Waiting] = {}
        self._passed: set[tuple[Place, Place, Place]] = set()
        self._sent = 0
        self._called: dict[Turn, set[str]] = {}

    def start(self) -> None:
        """Look for circles from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- who asks

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD)
            try:
                self._look()
            except Exception:
                logger.exception("the search for circles of calls failed")

    def _look(self) -> None:
        self._passed.clear()
        self._sent = 0
        now = asyncio.get_running_loop().time()
        before, self._waiting = self._waiting, {}
        asked = 0
        for message, behind in self._blocked():
            known = before.get(message.turn_id)
            if known is None or known.behind is not behind:
                known = _Waiting(behind, now)
            self._waiting[message.turn_id] = known
            if known.due <= now and asked < _MOST_ASKERS:
                asked += 1
                known.due, known.pause = now + known.pause, min(known.pause * 2, _LONGEST_PAUSE)
                self._ask(message)

    def _blocked(self) -> Iterator[tuple[DurableTurn, Turn]]:
        """Calls from turns that wait behind a turn which has a call open, and that turn."""
        for turn in list(self._services.dispatcher.open):
            activation = turn.activation
            if activation.mailbox and activation.top is turn and any(map(self._calls_of, activation.open_turns())):
                for message in _from_turns(activation):
                    yield message, turn

    def ask_at_once(self, activation: Activation) -> None:
        """Calls of this agent are waiting, and no wait will let them in."""
        asyncio.get_running_loop().call_soon(self._ask_all, activation)  # the last one is not in its partition yet

    def _ask_all(self, activation: Activation) -> None:
        for message in _from_turns(activation):
            self._ask(message)

    def _ask(self, message: DurableTurn) -> None:
        self._follow(Inquiry.of(Place(message.fence.keys.tag, message.fence.entry_id, message.turn_id)))

    # -- what is asked

    def _follow(self, inquiry: Inquiry) -> None:
        step = follow(inquiry, self._is_here, self._found)
        for circle in step.circles:
            self._end(circle)
        for onward in step.onward:
            self._pass_on(onward)

    def _is_here(self, tag: str) -> bool:
        return tag in self._services.partitions

    def _message(self, place: Place) -> DurableTurn | None:
        partition = self._services.partitions.get(place.tag)
        message = partition.pending.get(place.entry_id) if isinstance(partition, Partition) else None
        if isinstance(message, DurableTurn) and message.turn_id == place.turn_id and not message.abandoned:
            return message
        return None

    def _found(self, place: Place) -> Found | None:
        message = self._message(place)
        if message is None:
            return None
        if message.turn is not None:
            return Found(str(message.agent), False, tuple(self._calls_of(message.turn)))
        entry = message.entry
        if entry is None or entry.turn is not None or entry.activation is None:
            return None
        behind = _behind(message, entry.activation)
        return Found(str(message.agent), True, tuple(call for turn in behind for call in self._calls_of(turn)))

    def _calls_of(self, turn: Turn) -> list[Awaited]:
        """The calls that a turn has open, also through agents in the memory of this process."""
        found: list[Awaited] = []
        stack: list[tuple[Turn, tuple[str, ...]]] = [(turn, ())]
        while stack:
            current, through = stack.pop()
            found += [Awaited(call, through) for call in self._sent_by(current)]
            for call in current.calls or ():
                called = call if isinstance(call, Turn) else call.turn
                if called is not None:
                    stack.append((called, (*through, str(called.activation.id))))
        return found

    def _sent_by(self, turn: Turn) -> Iterator[Place]:
        if isinstance(turn.receipt, DurableTurn):
            yield from turn.receipt.awaited()
        replies = self._services.replies
        for field in self._called.get(turn, ()):
            call, entry_id = replies.open.get(field), replies.entry_ids.get(field)
            if call is not None and call.keys is not None and entry_id:
                yield Place(call.keys.tag, entry_id, call.turn_id)

    @contextmanager
    def called(self, turn: Turn | None, field: str) -> Generator[None]:
        """While a turn in memory awaits a call that is known by this field."""
        if turn is None or turn.closed:
            yield
            return
        self._called.setdefault(turn, set()).add(field)
        try:
            yield
        finally:
            fields = self._called[turn]
            fields.discard(field)
            if not fields:
                del self._called[turn]

    # -- what others are told

    def _pass_on(self, inquiry: Inquiry) -> None:
        passed = inquiry.asker, inquiry.at, inquiry.first
        if passed in self._passed or self._sent >= _MOST_ONWARD:
            return
        self._passed.add(passed)
        self._ring(INQUIRY, inquiry.at, [inquiry.asker, inquiry.first, inquiry.path])

    def _end(self, circle: Circle) -> None:
        if self._is_here(circle.refused.tag):
            self._refuse(circle)
        else:
            self._ring(CIRCLE, circle.refused, circle.agents)

    def _ring(self, kind: str, place: Place, payload: Any) -> None:
        if not self._services.link.connected:
            return
        self._sent += 1
        keys, text = leased_keys(place.tag), json.dumps(payload, ensure_ascii=False).encode()
        self._services.link.run(
            lambda scripts: scripts.ring(keys, kind=kind, entry_id=place.entry_id, turn_id=place.turn_id, payload=text),
            _ignore,
        )

    def hear(self, kind: str, fields: Fields) -> None:
        """The bell brought an inquiry, or a circle that one of our calls closes."""
        if b"e" not in fields:
            return  # too long to be carried
        at = Place(fields[b"p"].decode(), fields[b"i"].decode(), fields[b"m"].decode())
        payload = json.loads(fields[b"e"])
        if not self._is_here(at.tag):
            return  # it was ours; the next inquiry finds its new owner
        if kind == CIRCLE:
            self._refuse(Circle(at, tuple(payload)))
        else:
            asker, first, path = payload
            self._follow(Inquiry(Place(*asker), at, Place(*first), tuple(path)))

    def _refuse(self, circle: Circle) -> None:
        """End a waiting call with the error that names its circle."""
        message = self._message(circle.refused)
        if message is not None and message.entry is not None and self._services.dispatcher.withdraw(message.entry):
            logger.debug("a call to %s is refused, it closes the circle %s", message.agent, circle.agents)
            message.set_aside(CallCycleError(circle.agents), has_state=False)


def _from_turns(activation: Activation) -> list[DurableTurn]:
    receipts = [entry.receipt for entry in activation.mailbox or () if entry.is_rpc]
    return [receipt for receipt in receipts if isinstance(receipt, DurableTurn) and receipt.envelope.chain]


def _behind(message: DurableTurn, activation: Activation) -> list[Turn]:
    """The turns before a waiting call. One that it descends from lets it in, if not now then when it is on top."""
    turns = activation.open_turns()
    if not activation.hosted.reentrant:
        return turns
    above = {link.partition(".")[0] for link in message.envelope.chain}
    return [turn for turn in turns if not isinstance(turn.receipt, DurableTurn) or turn.receipt.turn_id not in above]


def _ignore(_: object) -> None:
    """Whether a bell was rung makes no difference: who needs it asks again."""
