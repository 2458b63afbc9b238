"""Calls that a person has to agree to: who asks, where they wait, who decides, and how that comes back.

    agent ──tells──▶ desk: pending ──decision, or its time is over──▶ told to the agent, once

The desk is an agent type like any other, registered with every agent that may ask. What holds at all times
    - A request is pending from the commit of the turn that asked to the commit of the decision, whatever dies
      meanwhile: no process has to live in between.
    - It is decided once; whoever comes second gets `AlreadyDecided`, which says who was first.
    - The decision leaves with the commit that takes the request away, so the agent is told exactly once.
    - Nobody has to ask the desk what is pending: its states are read (`Approvals.list`), with or without a worker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, Protocol, cast

from autogen_core import (
    AgentId,
    AgentRuntime,
    MessageContext,
    RoutedAgent,
    message_handler,
    try_get_known_serializers_for_type,
)
from pydantic import BaseModel, JsonValue, TypeAdapter

from stagebell.errors import AlreadyDecided, AlreadyRegistered, ServerRefused, Undeliverable, UnknownApproval
from stagebell.messages.set_aside import SetAside
from stagebell.runtime.engine.options import agent_options
from stagebell.runtime.engine.ports import SavedStates, Timers
from stagebell.runtime.engine.retry import Retry
from stagebell.tools.approval_messages import (
    ApprovalDecision,
    ApprovalExpired,
    ApprovalRequest,
    WithdrawApproval,
    request_in,
)

logger = logging.getLogger("stagebell")

DESK: Final = "stagebell.approvals"
"""The agent type of the desk."""

_SHARDS: Final = 64
_MOST_WAITING: Final = 400_000  # bytes at one desk; a state may have 1 MiB, and escapes take room
_MOST_DECIDED: Final = 20
_LONGEST_REMEMBERED: Final = 10_000  # characters of arguments


class PendingApproval(BaseModel):
    """A request that waits.

    Attributes:
        request: what was asked.
        asked_at: when, in milliseconds since the epoch.
        timer: of its expiry, if it has one.
    """

    request: ApprovalRequest
    asked_at: int
    timer: str = ""


_pending = TypeAdapter(dict[str, PendingApproval])
_decided = TypeAdapter(dict[str, ApprovalDecision])


def _size(request: ApprovalRequest) -> int:
    """About how many bytes it takes in a state."""
    return len(request.model_dump_json())


def desk_of(id: str) -> AgentId:
    """The desk at which a request of this id waits."""
    return AgentId(DESK, str(int.from_bytes(blake2b(id.encode(), digest_size=4).digest()) % _SHARDS))


async def register_desk(runtime: AgentRuntime) -> None:
    """Let a runtime take part in running the desk; again is no change."""
    with suppress(AlreadyRegistered):
        await ApprovalDesk.register(runtime, DESK, ApprovalDesk, skip_direct_message_subscription=True)


async def ask_for_approval(runtime: AgentRuntime, request: ApprovalRequest) -> None:
    """Let a request wait at its desk; from inside a turn it leaves with the turn's commit.

    The agent that it names gets an `ApprovalDecision`.

    Raises:
        Undeliverable, UnregisteredType: nobody has registered the desk, see `register_desk`.
        MessageTooLarge: the call is larger than a message may be.
    """
    await cast(Timers, runtime).schedule(request, desk_of(request.id), delay=0)


async def withdraw_approval(runtime: AgentRuntime, id: str, *, by: AgentId, reason: str) -> None:
    """Let a request wait no more, if it still does; from inside a turn it leaves with the turn's commit.

    Raises:
        Undeliverable, UnregisteredType: nobody has registered the desk.
    """
    message = WithdrawApproval(id=id, reason=reason, by=str(by))
    await cast(Timers, runtime).schedule(message, desk_of(id), delay=0)


@agent_options(retry=Retry(final=(UnknownApproval, AlreadyDecided, ValueError)))
class ApprovalDesk(RoutedAgent):
    """Keeps a share of the requests that wait, and remembers the last decisions."""

    def __init__(self) -> None:
        super().__init__("keeps calls that wait for a person's agreement")
        self._pending: dict[str, PendingApproval] = {}
        self._decided: dict[str, ApprovalDecision] = {}

    @message_handler
    async def on_request(self, message: ApprovalRequest, ctx: MessageContext) -> None:
        """Let it wait. One that was decided before, and is asked for again, gets the same decision again.

        What waits here must fit into a state: when it does not, nobody is asked and the call is rejected.
        """
        known = self._decided.get(message.id)
        if known is not None and known.verdict != "withdrawn":
            await self._tell(message, known)
        elif message.id not in self._pending and not self._has_room_for(message):
            reason = f"too much waits for a person already: {len(self._pending)} requests at this desk"
            await self._tell(message, ApprovalDecision(id=message.id, verdict="reject", reason=reason, by=DESK))
        elif message.id not in self._pending:
            timer = await self._expire_at(message)
            asked_at = int(time.time() * 1000)
            self._pending[message.id] = PendingApproval(request=message, asked_at=asked_at, timer=timer)

    @message_handler
    async def on_decision(self, message: ApprovalDecision, ctx: MessageContext) -> None:
        """Decide.

        Raises:
            UnknownApproval: nobody has asked for it.
            AlreadyDecided: somebody was faster.
            ValueError: only the desk itself says that one has expired.
        """
        if message.verdict in ("expired", "withdrawn"):
            raise ValueError(f"approval {message.id!r}: approve, edit or reject it; it expires by itself")
        if (known := self._decided.get(message.id)) is not None:
            raise AlreadyDecided(message.id, known.verdict, known.by)
        if message.id not in self._pending:
            raise UnknownApproval(message.id)
        await self._settle(message)

    @message_handler
    async def on_withdrawal(self, message: WithdrawApproval, ctx: MessageContext) -> None:
        """Who asked does not want it any more; perhaps somebody has just decided."""
        known = self._pending.pop(message.id, None)
        if known is None:
            return
        if known.timer:
            await self._timers.cancel_timer(known.timer)
        self._remember(ApprovalDecision(id=message.id, verdict="withdrawn", reason=message.reason, by=message.by))

    @message_handler
    async def on_expiry(self, message: ApprovalExpired, ctx: MessageContext) -> None:
        """Nobody has decided in time, or somebody just did."""
        if message.id not in self._pending:
            return
        expired = ApprovalDecision(id=message.id, verdict="expired", reason="nobody decided in time")
        try:
            await self._settle(expired)
        except Undeliverable as error:
            del self._pending[message.id]
            logger.warning("approval %s has expired, and who asked for it is gone: %s", message.id, error)

    @message_handler
    async def on_set_aside(self, message: SetAside, ctx: MessageContext) -> None:
        """A request could not be kept: who asked is not to wait for ever."""
        request = request_in(message)
        if request is not None and request.id not in self._pending:
            reason = f"nobody could be asked: {message.reason}"
            await self._tell(request, ApprovalDecision(id=request.id, verdict="reject", reason=reason, by=DESK))

    async def save_state(self) -> Mapping[str, Any]:
        """What waits, and the last decisions."""
        return {
            "pending": _pending.dump_python(self._pending, mode="json"),
            "decided": _decided.dump_python(self._decided, mode="json"),
        }

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """As `save_state` gave it."""
        self._pending = _pending.validate_python(state["pending"])
        self._decided = _decided.validate_python(state["decided"])

    async def _settle(self, decision: ApprovalDecision) -> None:
        known = self._pending[decision.id]
        request = known.request
        await self._tell(request, decision)
        if known.timer and decision.verdict != "expired":
            await self._timers.cancel_timer(known.timer)
        del self._pending[decision.id]
        self._remember(decision)

    def _has_room_for(self, request: ApprovalRequest) -> bool:
        waiting = sum(_size(each.request) for each in self._pending.values())
        return waiting + _size(request) <= _MOST_WAITING

    def _remember(self, decision: ApprovalDecision) -> None:
        if len(str(decision.arguments)) <= _LONGEST_REMEMBERED:
            self._decided[decision.id] = decision
        while len(self._decided) > _MOST_DECIDED:
            del self._decided[next(iter(self._decided))]

    async def _expire_at(self, request: ApprovalRequest) -> str:
        if request.expires_at is None:
            return ""
        at = datetime.fromtimestamp(request.expires_at / 1000, UTC)
        return (await self._timers.schedule(ApprovalExpired(id=request.id), self.id, at=at)).id

    async def _tell(self, request: ApprovalRequest, decision: ApprovalDecision) -> None:
        call = request.call
        asked = {"run_id": request.run_id, "call_id": call.id, "call": call, "context": request.context}
        await self._timers.schedule(decision.model_copy(update=asked), AgentId.from_str(request.agent), delay=0)

    @property
    def _timers(self) -> Timers:
        return cast(Timers, self.runtime)


class Client(Protocol):
    """What a process without agents calls with: `Publisher`."""

    async def call(self, message: Any, recipient: AgentId) -> Any:
        """Call an agent."""
        ...


class Approvals:
    """What waits for a person in a namespace, and what is decided on it.

    Args:
        runtime: a runtime that has a desk (`LocalRuntime`, or any `RedisRuntime` of the namespace), or a `Publisher`.
    """

    def __init__(self, runtime: AgentRuntime | Client) -> None:
        self._runtime = runtime

    async def list(self) -> list[PendingApproval]:
        """What waits, the oldest first; no worker is needed."""
        states = await cast(SavedStates, self._runtime).saved_states(DESK)
        found = [each for state in states.values() for each in _pending.validate_python(state["pending"]).values()]
        return sorted(found, key=lambda each: (each.asked_at, each.request.id))

    async def approve(self, id: str, *, by: str = "", reason: str = "") -> bool:
        """Let a call run as it was asked for.

        Args:
            id: of the request.
            by: who decides.
            reason: why.

        Returns:
            True when the decision has taken effect; False when no worker is there: it is kept, and takes effect when
            one starts, unless another one comes before it.

        Raises:
            UnknownApproval: nobody has asked for it.
            AlreadyDecided: somebody has decided before.
            Undeliverable: the type of the agent that asked is not known any more.
        """
        return await self.decide(ApprovalDecision(id=id, verdict="approve", by=by, reason=reason))

    async def edit(self, id: str, arguments: Mapping[str, JsonValue], *, by: str = "", reason: str = "") -> bool:
        """Let a call run with other arguments; as `approve`."""
        edited = dict(arguments)
        return await self.decide(ApprovalDecision(id=id, verdict="edit", arguments=edited, by=by, reason=reason))

    async def reject(self, id: str, reason: str = "", *, by: str = "") -> bool:
        """Let a call not run; as `approve`."""
        return await self.decide(ApprovalDecision(id=id, verdict="reject", reason=reason, by=by))

    async def decide(self, decision: ApprovalDecision) -> bool:
        """Send a decision to its desk; as `approve`."""
        desk = desk_of(decision.id)
        try:
            if isinstance(self._runtime, AgentRuntime):
                self._runtime.add_message_serializer(try_get_known_serializers_for_type(ApprovalDecision))
                await self._runtime.send_message(decision, desk)
            else:
                await self._runtime.call(decision, desk)
        except Undeliverable as error:
            if error.recipient != str(desk):
                raise  # it is the agent that asked, of which nobody knows any more
            await self._find(decision.id)
            # No worker: the call was taken back from the desk's inbox.
            await cast(Timers, self._runtime).schedule(decision, desk, delay=0)
            return False
        return True

    async def _find(self, id: str) -> None:
        """Look whether a request is stored, where no desk is there to say so; who may not read is let through."""
        try:
            stored = (await cast(SavedStates, self._runtime).saved_states(DESK, desk_of(id).key)).values()
        except ServerRefused:
            return
        for state in stored:
            if (known := _decided.validate_python(state["decided"]).get(id)) is not None:
                raise AlreadyDecided(id, known.verdict, known.by)
        if not any(id in state["pending"] for state in stored):
            raise UnknownApproval(id)
