"""Replies that come later than the end of the turn that handled the call, durable.

The commit of a turn that deferred its reply leaves a mark in the callee's partition, with the address of the reply, and
answers nobody: a caller that is a turn keeps the call open in its journal, one outside of turns goes on waiting. The
commit of the turn that answers takes the mark away and answers, in one step. So

    - a call has a mark if and only if its turn took effect and its answer has not: it is neither lost nor undeliverable
    - two turns that answer one call cannot both commit: the second finds the mark gone, and runs again
    - whoever gave up waiting has closed the call, and the answer goes nowhere; when the agent wants to know, the same
      step takes the mark away and tells it (`end_call`)
    - the mark of another call goes soon after its deadline, if it has one (`expiring`); the handle says when that is,
      so an answer that comes too late finds out why there is no mark
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from autogen_core import AgentId

from stagebell.errors import AlreadyAnswered, DeferredReplyError
from stagebell.runtime.engine.deferred import refuse_result
from stagebell.runtime.engine.turn import Entry, Turn
from stagebell.runtime.redis.effects import Mark, give_reply, read_mark, take_mark
from stagebell.runtime.redis.expiring import KEPT_MS

if TYPE_CHECKING:
    from stagebell.runtime.redis.services import Services
    from stagebell.runtime.redis.turns import DurableTurn


class DeferredCall:
    """What a turn keeps once its reply was deferred; see `ports.Later`. `answer` is what it answers after all."""

    __slots__ = ("_turn", "answer", "id", "if_given_up")

    def __init__(self, turn: Turn, id: str) -> None:
        self.id = id
        self.if_given_up = b""
        self.answer: bytes | None = None
        self._turn = turn

    def result(self, result: Any) -> Any:
        """Nothing: the commit knows what to do. Raises DeferredReplyError when the handler returned something."""
        refuse_result(self._turn, result)

    def keep(self, entry: Entry) -> None:
        """Nobody waits in this process's memory."""


class DurableReplies:
    """See the top of this file, and `ports.LaterReplies`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def defer(self, turn: Turn, if_given_up: Any) -> str:
        """The reply to the call that `turn` handles comes later; returns its id, which is that of the turn.

        Raises:
            DeferredReplyError: the turn is being committed.
            UnregisteredType, MessageTooLarge: `if_given_up` cannot travel.
        """
        own, wire = _open(turn), self._services.wire
        word = b""
        if if_given_up is not None:
            id = f"{own.turn_id}~given_up"
            word = wire.told(wire.encode(if_given_up), id=id, to=own.agent, sender=None)
        if turn.later is None:
            limit = "" if own.envelope.deadline is None else f".{own.envelope.deadline}"
            turn.later = DeferredCall(turn, own.turn_id + limit)
        if word and isinstance(turn.later, DeferredCall):
            turn.later.if_given_up = word
        return turn.later.id

    async def answer(self, turn: Turn, id: str, message: Any, error: BaseException | None) -> None:
        """Answer a call with the commit of `turn`; see `ports.LaterReplies`."""
        own = _open(turn)
        later = turn.later
        if isinstance(later, DeferredCall) and later.id == id:
            if later.answer is not None:
                raise AlreadyAnswered(own.agent, id)
            later.answer = await self._encode(own.agent, own.envelope.id, own.envelope.sender, message, error)
            return
        turn_id, _, deadline = id.partition(".")
        found = await self._find(own, turn_id)
        if found is None:
            if deadline.isdecimal() and int(deadline) + KEPT_MS <= self._services.clock.now_ms():
                return  # its caller has given up, and nobody knows whether it was answered after that
            raise AlreadyAnswered(own.agent, id)
        stored, mark = found
        payload = await self._encode(own.agent, mark.id, mark.sender, message, error)
        _open(turn)
        if _answered_in(turn, id):
            raise AlreadyAnswered(own.agent, id)
        own.outbox.answered.add(id)
        own.outbox.put(take_mark(own.fence.keys, turn_id, stored), *give_reply(mark.reply_to, payload))

    async def _find(self, own: DurableTurn, turn_id: str) -> tuple[bytes, Mark] | None:
        deferring = self._services.deferring.get(turn_id)
        if deferring is not None:  # its turn has ended, and its commit is on the way
            await asyncio.wait([deferring])
        stored = await self._services.link.submit(lambda scripts: scripts.mark(own.fence.keys, turn_id))
        if own.abandoned:
            raise asyncio.CancelledError(f"the turn of {own.agent} is not ours any more")
        mark = read_mark(stored) if stored is not None else None
        if stored is None or mark is None or mark.agent != str(own.agent):
            return None
        return stored, mark

    async def _encode(self, agent: AgentId, id: str, sender: str, message: Any, error: BaseException | None) -> bytes:
        interventions = self._services.catalog.later.interventions
        if error is None and interventions.active:
            try:
                recipient = AgentId.from_str(sender) if sender else None
                message = await interventions.on_response(message, agent, recipient)
            except Exception as refused:
                error = refused
        if error is not None:
            return self._services.wire.failure(error, id=id, sender=str(agent))
        return self._services.wire.reply(message, id=id, sender=agent)


def _open(turn: Turn) -> DurableTurn:
    """The turn that takes effect with a commit. Raises DeferredReplyError when that is over."""
    own = cast("DurableTurn | None", turn.receipt)
    if own is None or not own.takes_effects:
        raise DeferredReplyError(f"a turn of {turn.activation.id} has ended, and a task of it wants to answer a call")
    return own


def _answered_in(turn: Turn, id: str) -> bool:
    """True when this turn, or one that waits for it, answers the call with its commit."""
    each: Turn | None = turn
    while each is not None:
        own = cast("DurableTurn | None", each.receipt)
        if own is not None and id in own.outbox.answered:
            return True
        each = each.below
    return False
