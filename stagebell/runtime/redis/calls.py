"""The calls of one turn: each leaves exactly once, however often the turn is run, and gets the same reply each time.

Call k of a turn is recorded in the turn's journal by the script that sends it; so is its reply, by the callee's
commit. A turn that runs again (its worker died) asks the journal first, and takes replies and savepoints in the order
of its first run (`taking`; the rule is in `savepoints`). k = branch.number: branches are the tasks of
the turn in the order of their first call, so calls made at once by `gather` keep their places.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError, Future, Task
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from autogen_core import AgentId, CancellationToken

from stagebell.errors import CallDepthExceeded, DeadlineExceeded, ServerRefused, ServerUnavailable
from stagebell.messages.codec import unpack
from stagebell.messages.envelope import Envelope
from stagebell.messages.ids import call_id, turn_id
from stagebell.messages.registry import Encoded
from stagebell.runtime.redis.callees import find_callee
from stagebell.runtime.redis.circles import Place
from stagebell.runtime.redis.given_up import given_up, patience_after
from stagebell.runtime.redis.records import after_earlier_commits
from stagebell.runtime.redis.replies import OpenCall
from stagebell.runtime.redis.requests import Delivery, ReplyTo
from stagebell.runtime.redis.results import CallReply
from stagebell.runtime.redis.taking import Taking

if TYPE_CHECKING:
    from stagebell.runtime.redis.services import Services
    from stagebell.runtime.redis.turns import DurableTurn

logger = logging.getLogger("stagebell")


class TurnEnded(Exception):
    """The turn ended before its call was sent: the call is no part of it any more."""


class TurnCalls:
    """The calls of one turn that wait, by k, and what the turn knows of its journal."""

    def __init__(self, services: Services, turn: DurableTurn) -> None:
        self.open: dict[str, OpenCall] = {}
        self.entry_ids: dict[str, str] = {}
        self.failed: list[str] = []  # those whose recorded reply is a failure
        self.known_replies = 0
        self.known_savepoints = 0
        self._first = True  # no call of this attempt was answered by the server yet, and no nested turn began
        self._services = services
        self._turn = turn
        self._requests: dict[str, tuple[Delivery, str]] = {}
        self._branches: dict[Task[Any] | None, int] = {}
        self._numbers: dict[int, int] = {}
        self._answered = 0
        self._ending = False  # its handler has ended, nested turns have not
        self._forsaken = False  # nobody waits for its calls, but they are not cancelled
        self.savepoint = b""  # the last one: what nested turns left, and others have seen
        self._joined: set[str] = set()
        self.taking = Taking(services, turn, self.open, self._let_in)

    def awaits_one_of(self, chain: tuple[str, ...]) -> str | None:
        """The k of the open call that is in `chain`; "-" for a call to an agent of this process, None for none."""
        own = self._turn.turn_id
        for link in chain:
            head, _, k = link.partition(".")
            if head == own and (k in self._joined or (not k and self._calls_in_memory)):
                return k or "-"
        return None

    def awaited(self) -> Iterator[Place]:
        """The calls that wait for their replies, as far as the server has taken them."""
        for k, call in self.open.items():
            if call.keys is not None and (entry_id := self.entry_ids.get(k)) and not call.answer.done():
                yield Place(call.keys.tag, entry_id, call.turn_id)

    def keep(self, state: bytes) -> None:
        """What a nested turn leaves, also if this turn fails; empty: nothing new."""
        self.savepoint = state or self.savepoint

    def saved(self, more: int) -> None:
        """So many more savepoints were written (-1: one fewer)."""
        self.known_savepoints += more

    @property
    def _calls_in_memory(self) -> bool:
        return self._turn.turn is not None and bool(self._turn.turn.calls)

    async def call(
        self,
        encoded: Encoded,
        recipient: AgentId,
        sender: AgentId | None,
        token: CancellationToken | None,
        deadline: int | None = None,
    ) -> Any:
        """Send a call, or learn its reply from the journal; returns the reply.

        Raises:
            CallDepthExceeded: the chain of calls is longer than the limit.
            DeadlineExceeded: the deadline was over before the reply came.
            NonDeterministicReplay: the turn ran again and made another call in this place.
            asyncio.CancelledError: the turn or the token was cancelled, or the turn is not ours any more.
            BaseException: what the callee's handler raised.
        """
        services, own = self._services, self._turn
        chain = own.envelope.chain
        if len(chain) >= services.max_call_depth:
            raise CallDepthExceeded(recipient, len(chain) + 1, services.max_call_depth)
        k = self._next_k()
        self._check_cancelled()
        id = call_id(own.turn_id, k)
        reply = ReplyTo.caller(own.fence.keys, own.turn_id, k)
        envelope = services.wire.request(
            encoded, id=id, to=recipient, sender=sender, reply=reply, chain=(*chain, id), deadline=deadline
        )
        try:
            place = await find_callee(services, own.fence, k, recipient, deadline)
            await after_earlier_commits(own.turn)
        except CancelledError:
            await self._see_before_going_on(k)
            raise
        delivery = Delivery(place, turn_id(id, str(recipient)), str(recipient), envelope)
        try:
            outcome = await self._exchange(k, recipient, delivery, _digest(recipient, encoded), reply, token, deadline)
        except TurnEnded:  # this task of it goes on
            self._check_cancelled()
            return await services.transport.call(
                encoded, recipient, sender=sender, token=token, chain=chain, deadline=deadline
            )
        return services.wire.outcome(outcome)

    def _check_cancelled(self) -> None:
        turn = self._turn.turn
        if turn is not None and turn.cancelled:
            raise CancelledError(f"the turn of {self._turn.agent} is cancelled, and so is what it would call")

    async def _exchange(
        self,
        k: str,
        recipient: AgentId,
        delivery: Delivery,
        digest: str,
        reply: ReplyTo,
        token: CancellationToken | None,
        deadline: int | None,
    ) -> Envelope:
        services, own = self._services, self._turn
        if own.abandoned:
            raise CancelledError(f"the turn of {own.agent} is not ours any more")
        if not own.takes_effects:
            raise TurnEnded
        loop = asyncio.get_running_loop()
        answer: Future[Envelope] = loop.create_future()
        self.open[k] = OpenCall(recipient, delivery.keys, delivery.turn_id, reply, answer, loop.time())
        self._requests[k] = delivery, digest
        services.calling[own.turn_id] = own
        alarm = None if deadline is None else services.clock.call_at(deadline, lambda: self._too_late(k, deadline))
        try:
            own.ensure_begun()
            await self.ask(k)
            if not self.taking.replaying:  # the states that earlier nested turns left are loaded first
                self._let_in(k)
            outcome = await services.awaiting.answer(answer, token)
            if outcome.kind == "failure":
                self.failed.append(k)
            return outcome
        except CancelledError:
            if self._given_up(k):
                answer.cancel()
                self._joined.discard(k)
                await self._see_before_going_on(k)
            raise
        finally:
            if alarm is not None:
                alarm.cancel()
            answer.cancel()  # if it is still open: whoever has adopted it must let it go
            self._joined.discard(k)
            self.open.pop(k, None)
            self.entry_ids.pop(k, None)
            self._requests.pop(k, None)

    def let_no_more_in(self) -> None:
        """The turn is ending: what descends from its calls and has not started waits until it is over."""
        self._ending = True
        self._joined.clear()

    def _let_in(self, k: str) -> None:
        """Calls that descend from call k may start now; in a turn that runs again they may be waiting already."""
        if self._ending:
            return
        self._joined.add(k)
        if self._turn.turn is not None:
            activation = self._turn.turn.activation
            self._services.dispatcher.look_again(activation)
            if activation.mailbox and not activation.hosted.reentrant:
                self._services.find_circles(activation)

    def _too_late(self, k: str, deadline: int) -> None:
        """The deadline of call k is over: that is its outcome, unless the journal has another."""
        call = self.open.get(k)
        if call is None or call.answer.done():
            return
        error = DeadlineExceeded(call.recipient, deadline)
        failure = self._services.wire.failure(error, id=call_id(self._turn.turn_id, k), sender=str(call.recipient))

        def ended(outcome: int | BaseException) -> None:
            if outcome == 1:
                self.heard(k, failure)
            elif not isinstance(outcome, BaseException):
                self._services.dispatcher.spawn(self.poll(k))

        self._end(k, call, "deadline", failure, ended)

    def _given_up(self, k: str) -> bool:
        """Whoever awaits call k was cancelled: so is the call, wherever it is by now; False when the turn is over."""
        call, own = self.open.get(k), self._turn
        if call is None or self._will_run_again:
            return False  # and needs the call
        self.failed.append(k)
        waited = asyncio.get_running_loop().time() - call.since
        record = given_up(call_id(own.turn_id, k), str(call.recipient), waited)
        self._end(k, call, "cancel", record, lambda outcome: None)
        return True

    @property
    def _will_run_again(self) -> bool:
        """True when the turn is not to be ended here; when a stop cancels it, the next owner runs it."""
        own = self._turn
        cancelled = own.turn is not None and own.turn.cancelled and not own.ended_early
        return own.abandoned or self._forsaken or (self._services.stopping and cancelled)

    async def _see_before_going_on(self, k: str) -> None:
        """Call k is given up: what the turn does then comes after all that an earlier attempt has seen before that.

        No call was answered yet, perhaps: then it is not known either whether there was an earlier attempt.
        """
        if self._will_run_again:
            return
        if self._first and self._turn.keeps_state:
            self._first = False
            self.taking.replay()
        await self.taking.given_up(k)

    def _end(
        self,
        k: str,
        call: OpenCall,
        why: Literal["cancel", "deadline"],
        failure: bytes,
        answered: Callable[[int | BaseException], None],
    ) -> None:
        keys, entry_id, fence, wish = call.keys, self.entry_ids.get(k, ""), self._turn.fence, self._turn.wish
        if keys is None:
            return
        self._services.link.run(
            lambda scripts: scripts.end_call(
                keys, turn_id=call.turn_id, why=why, entry_id=entry_id, caller=fence, k=k, failure=failure, wish=wish
            ),
            answered,
        )

    async def ask(self, k: str) -> None:
        """Send call k if it was not sent yet, and take its reply if there is one."""
        if k not in self._requests:
            return
        delivery, digest = self._requests[k]
        # As of now: sent again over another connection, it comes before what was asked for meanwhile.
        replies, savepoints = self.known_replies, self.known_savepoints
        reply = await self._services.link.submit(
            lambda scripts: scripts.call(
                self._turn.fence,
                k,
                delivery,
                digest=digest,
                known_replies=replies,
                known_savepoints=savepoints,
                version=self._turn.version,
                registry_version=self._services.directory.checked_version(delivery.keys),
            )
        )
        if reply.status == "STALE_REGISTRY":
            await self._find_again(k)
            await self.ask(k)
        else:
            self._take(k, reply)

    async def _find_again(self, k: str) -> None:
        """The process that held the agent may have ended."""
        call, (delivery, digest) = self.open[k], self._requests[k]
        await self._services.directory.refresh()
        patience = self._services.settings.undeliverable_after
        place = await self._services.directory.wait_for_place(call.recipient, patience)
        self.open[k] = call._replace(keys=place)
        self._requests[k] = delivery._replace(keys=place), digest

    async def poll(self, k: str) -> None:
        """Ask the journal whether call k was answered; a refusal goes to whoever awaits the call."""
        self.taking.look()
        if self.taking.has(k):
            return
        try:
            await self.ask(k)
            if k in self._joined:
                self._let_in(k)
        except (Exception, CancelledError) as error:
            call = self.open.get(k)
            if call is None or call.answer.done() or isinstance(error, ServerUnavailable | TurnEnded):
                return
            if isinstance(error, CancelledError):
                call.answer.cancel()
            else:
                call.answer.set_exception(error)

    def heard(self, k: str, payload: bytes) -> None:
        """The bell brought the reply to call k."""
        if k not in self.open or self.taking.has(k):
            return
        # Each reply that this turn has seen is one the journal holds: a journal with fewer has lost writes.
        self._answered += 1
        self.known_replies = max(self.known_replies, self._answered)
        self.taking.arrived(k, unpack(payload))

    def nested_began(self) -> None:
        """A nested turn of this attempt will leave a savepoint."""
        self._first = False

    def hand_over(self) -> None:
        """The turn ends; the replies to calls that tasks of it still have open will come to the process."""
        self.taking.stop()
        for k, call in self.open.items():
            self._services.replies.adopt(call_id(self._turn.turn_id, k), call, self.entry_ids.get(k, ""))

    def cancel(self) -> None:
        """The turn is cancelled: so are its calls, wherever they are."""
        for call in self.open.values():
            call.answer.cancel()

    def give_up(self) -> None:
        """The turn has ended without effect: nobody will answer its calls here."""
        self._forsaken = True
        self.taking.stop()
        for call in self.open.values():
            call.answer.cancel()

    def _take(self, k: str, reply: CallReply) -> None:
        match reply.status:
            case "SENT" | "PENDING" | "REPLY":
                self.known_replies = max(self.known_replies, reply.replies)
                if self._first and (reply.savepoints or reply.status != "SENT") and self._turn.keeps_state:
                    self.taking.replay()
                self._first = False
                self.known_savepoints = max(self.known_savepoints, reply.savepoints)
                self.entry_ids[k] = reply.entry_id
                self.taking.was_made(k, anew=reply.status == "SENT")
                if reply.status == "REPLY" and k in self.open and not self.taking.has(k):
                    self._answered += 1
                    self._answer(k, unpack(reply.reply))
            case "CHANGED":
                raise self._turn.not_deterministic(k)
            case "GONE" if not self._turn.takes_effects:
                raise TurnEnded
            case "FENCED" | "GONE" | "STALE":
                self._turn.lost_its_ground(fenced=reply.status == "FENCED")
                raise CancelledError(f"the turn of {self._turn.agent} is not ours any more ({reply.status})")
            case _:
                raise ServerRefused(f"call {k} of {self._turn.agent} was refused: {reply.status} {reply.detail}")

    def _answer(self, k: str, outcome: Envelope) -> None:
        patience, clock = patience_after(outcome), self._services.clock
        if patience is None:
            self.taking.arrived(k, outcome)
        else:
            clock.call_at(clock.now_ms() + patience, self.open[k].answer.cancel)

    def _next_k(self) -> str:
        branch = self._branches.setdefault(asyncio.current_task(), len(self._branches))
        number = self._numbers.get(branch, 0)
        self._numbers[branch] = number + 1
        return f"{branch}.{number}"


def _digest(recipient: AgentId, encoded: Encoded) -> str:
    return blake2b(f"{recipient}\0{encoded.name}".encode(), digest_size=4).hexdigest()
