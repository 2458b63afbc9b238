"""What an agent keeps of its runs, and how the loop moves it on: the part of the actor that handles no message.

event ──▶ next_step ──▶ the new state ──▶ those who wait are answered · the agent tells itself to go on
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, cast

from autogen_core import AgentId, MessageContext, RoutedAgent
from pydantic import JsonValue

from stagebell.agents.acting import tell
from stagebell.agents.contained import Uncontrolled, contained
from stagebell.agents.ends import tell_end
from stagebell.agents.events import (
    Begin,
    CallsHandled,
    CancelBelow,
    Compensate,
    Due,
    Effect,
    Event,
    Finish,
    ModelFailed,
    RequestModel,
    RunCalls,
    Undone,
    Withdraw,
)
from stagebell.agents.inquiries import what_happened, with_readers, with_told
from stagebell.agents.limits import Limits
from stagebell.agents.loop import due, next_step
from stagebell.agents.messages import CancelRun, ContinueRun, RunEnded, RunOverdue, Task
from stagebell.agents.room import bytes_of, most_bytes, with_room
from stagebell.agents.state import Job, LoopState, read_state, write_control, write_entry
from stagebell.agents.tokens import tell_reader
from stagebell.errors import DeferredReplyError, MessageError, ServerError, StagebellError
from stagebell.messages.conversation import AnyEntry, RunResult
from stagebell.messages.tool_calls import ErrorCode, ToolResult
from stagebell.messages.trusted import trusted
from stagebell.runtime.engine.deadlines import now_ms
from stagebell.runtime.engine.deferred import DeferredReply
from stagebell.runtime.engine.ports import GoingOn, StateLimit, Timers
from stagebell.runtime.engine.snapshots import WrittenState, as_text
from stagebell.runtime.engine.timers import TimerId
from stagebell.tools.approvals import withdraw_approval
from stagebell.tools.policy import text_of

logger = logging.getLogger("stagebell")

_FIRST_PAUSE: Final = 0.2  # seconds before a request that failed is made again; each further one is twice as long
_LONGEST_PAUSE: Final = 10.0
_STEPS_BETWEEN_YIELDS: Final = 16

_handlers: dict[type, Any] = {}


class LoopActor(RoutedAgent):
    """Base of agents that run tasks.

    Args:
        description: what the agent is.
        limits: the bounds of each of its runs.

    Raises:
        ValueError: nothing in them bounds a run.
    """

    keeps_moves = False
    """Whether a kind of agent acts on each move, also on those without an effect."""

    def __init__(self, description: str, limits: Limits) -> None:
        super().__init__(description)
        self.limits = limits.check()
        self.state = LoopState()
        self._written: list[str] = []
        self._written_of: Sequence[AnyEntry] = ()
        self._bytes = 0  # of the entries that were written
        self._told: int | None = None  # the change after which this instance told itself to go on
        self._begun: int | None = None  # the one after which it began to do what is due
        self._due_in: tuple[LoopState, Due | None] = self.state, None

    @classmethod
    def _discover_handlers(cls) -> Any:
        """The handlers of the class; AutoGen looks for them anew for each agent."""
        found = _handlers.get(cls)
        if found is None:
            found = _handlers[cls] = super()._discover_handlers()
        return found

    # -- what a kind of agent adds

    @abstractmethod
    async def perform(self, work: Due, ctx: MessageContext) -> Event:
        """Do what is due, and tell what came of it. Raises nothing but what ends the turn without a trace."""

    @abstractmethod
    def check_task(self, task: Task) -> tuple[str, str]:
        """The task's content as it is let in, and why it is refused, if so. Raises ValueError for one that is wrong."""

    @abstractmethod
    async def check_output(self, output: JsonValue, ctx: MessageContext) -> str:
        """Why the output of an agent that took over cannot be that of the run, if so."""

    def ends_run(self, code: ErrorCode) -> bool:
        """Whether an error of this code ends the run."""
        return True

    def forget(self) -> None:
        """A run has ended, or another state was loaded: what was kept for it is not needed any more."""

    # -- state

    async def save_state(self) -> Mapping[str, Any]:
        """The three sections; entries that were written before are not written anew."""
        entries, known = self.state.conversation, len(self._written_of)
        if known > len(entries) or (known and entries[known - 1] is not self._written_of[-1]):
            self._written, known, self._bytes = [], 0, 0
        for entry in entries[known:]:
            self._written.append(write_entry(entry))
            self._bytes += bytes_of(self._written[-1])
        self._written_of = entries
        control = write_control(self.state.control)
        business = "null" if self.state.business is None else as_text(self.state.business)
        conversation = ",".join(self._written)
        return WrittenState(f'{{"conversation":[{conversation}],"control":{control},"business":{business}}}')

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `save_state` gave.

        Raises:
            MalformedState: it is no such state; the error names the section and the field.
        """
        self._take(read_state(str(self.id), state))

    async def restore_state(self, state: Mapping[str, Any]) -> None:
        """The same, for a state that comes back together with the messages that left with it.

        Raises:
            MalformedState: as above.
        """
        restored = read_state(str(self.id), state)
        self._take(restored)
        self.state = restored

    def _take(self, state: LoopState) -> None:
        self.state = with_told(state, None)
        self._told = self._begun = None
        self.forget()

    # -- the loop

    async def _do(self, work: Due, ctx: MessageContext) -> None:
        """Do what is due, and let the loop move on with what came of it.

        In memory, where no commit comes in between, what is due next is done in the same turn.
        """
        runtime, next_one, steps = cast(GoingOn, self.runtime), cast("Due | None", work), 0
        while next_one is not None:
            self._begun = self.state.control.sequence
            steps += 1
            if not steps % _STEPS_BETWEEN_YIELDS:
                await asyncio.sleep(0)  # models and tools of tests never give way to others
            event = await self._outcome(next_one, ctx)
            if (limit := self._state_limit) is not None:
                event = with_room(event, str(self.id), limit, self._size_after, now_ms())
            self._begun = None  # it is done
            await self._move(event)
            next_one = self._due()
            if (isinstance(next_one, RequestModel) and next_one.retries) or not runtime.may_go_on():
                break
        await self._go_on()

    async def _outcome(self, work: Due, ctx: MessageContext) -> Event:
        most = most_bytes(self._state_limit, self.limits.max_bytes)
        if isinstance(work, RequestModel) and most is not None and self._bytes > most:
            text = f"the conversation has {self._bytes:,} bytes, and begins no step from {most:,} on"
            return ModelFailed(f"{text}: let the next task begin another conversation", now_ms(), final=True)
        try:
            event: Event = await contained(self.perform(work, ctx), ctx.cancellation_token)
        except ServerError:
            raise  # the turn comes again, and with it this work
        except Exception as error:
            logger.exception("%s could not do what was due in its run", self.id)
            return impossible(work, str(error) if isinstance(error, Uncontrolled) else text_of(error))
        return event

    @property
    def _state_limit(self) -> int | None:
        """How many bytes a state may have here; None where it is not stored with each turn."""
        return cast(StateLimit, self.runtime).state_limit

    def _size_after(self, event: Event) -> int:
        """How many bytes the state will have after an event."""
        after = next_step(self.state, event, self.limits).state
        new = [bytes_of(write_entry(entry)) for entry in after.conversation[len(self._written_of) :]]
        rest = bytes_of(write_control(after.control)) + bytes_of(as_text(after.business))
        return self._bytes + sum(new) + rest + len(after.conversation)

    async def _apply(self, event: Event) -> None:
        """Let the loop move on, do what that asks for, and see to it that what is due will be done."""
        await self._move(event)
        await self._go_on()

    async def _move(self, event: Event) -> None:
        step = next_step(self.state, event, self.limits)
        if step.state is not self.state:
            self.state, self._due_in = step.state, (step.state, step.due)
        if step.effects or self.keeps_moves:
            await self._act_on(step.effects)
        if self.state.control.readers:
            await self._answer_readers()

    async def _act_on(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Begin(run) if run.deadline is not None and run.deadline != run.job.deadline:
                    await self._set_timer(run.run_id, run.deadline)
                case Finish(job, result, timed):
                    await self._finish(job, result, timed=timed)
                case CancelBelow(payload):
                    await self._cancel_below(cast("dict[str, str]", payload))
                case Withdraw(_, "approval", payload):
                    await self._withdraw(cast("dict[str, str]", payload)["id"])
                case _:
                    pass

    async def _go_on(self) -> None:
        """Tell this agent to do what is due, unless it was told."""
        sequence = self.state.control.sequence
        if self._was_told:
            return
        match self._due():
            case None:
                return
            case RequestModel(retries) if retries:
                delay = min(_FIRST_PAUSE * 2 ** (retries - 1), _LONGEST_PAUSE)
                await self._timers.schedule(ContinueRun(sequence=sequence), self.id, delay=delay)
            case _:
                await tell(self.runtime, trusted(ContinueRun, sequence=sequence), self.id)
        self._told = sequence
        self._note_told(sequence)

    @property
    def _was_told(self) -> bool:
        """True when the message by which the agent goes on from this state is under way."""
        control = self.state.control
        return control.sequence in (self._told, control.told)

    def _note_told(self, sequence: int | None) -> None:
        """Let it stand in the state: nobody who looks at the run lets it be told again while it is under way."""
        due = self._due()
        self.state = with_told(self.state, sequence)
        self._due_in = self.state, due

    def _due(self) -> Due | None:
        """What is to be done now, found out once for each state."""
        if self._due_in[0] is not self.state:
            self._due_in = self.state, due(self.state)
        return self._due_in[1]

    async def _finish(self, job: Job, result: RunResult, *, timed: bool) -> None:
        self.forget()
        tell_end(self.id, result, started_by_a_run=job.parent is not None)
        if job.tokens_to:
            await tell_reader(self.runtime, job.tokens_to, job.run_id)
        for reply in job.reply:
            await _answer(reply, result)
        if job.parent is not None:
            parent = job.parent
            ended = RunEnded(run_id=parent.run_id, call_id=parent.call_id, result=result)
            try:
                await tell(self.runtime, ended, AgentId.from_str(parent.agent))
            except StagebellError as error:
                logger.warning("%s cannot be told that run %s has ended: %s", parent.agent, job.run_id, error)
        if timed:
            await self._timers.cancel_timer(str(TimerId.make(self.id, _timer_name(job.run_id))))

    async def _disappoint(self, error: Exception, state: LoopState) -> None:
        """Nobody will tell those who wait in this state what comes of their runs."""
        control = state.control
        jobs = [*control.queue, *([control.active.job] if control.active is not None else [])]
        for reply in [*(reply for job in jobs for reply in job.reply), *(reader.reply for reader in control.readers)]:
            with suppress(DeferredReplyError):
                await DeferredReply(reply).fail(error)

    async def _answer_readers(self) -> None:
        control = self.state.control
        still = list(control.readers)
        for reader in control.readers:
            events = what_happened(self.state, reader.run_id, reader.offset)
            if events.entries or events.ended:
                still.remove(reader)
                await _answer(reader.reply, events)
        if len(still) != len(control.readers):
            self.state = with_readers(self.state, tuple(still))

    async def _cancel_below(self, below: Mapping[str, str]) -> None:
        cancel = CancelRun(run_id=below["run_id"], why="the run that started it has ended")
        try:
            await tell(self.runtime, cancel, AgentId.from_str(below["agent"]))
        except StagebellError as error:
            logger.warning("run %s cannot be told that it is not wanted any more: %s", below["run_id"], error)

    async def _withdraw(self, approval: str) -> None:
        """Nobody is to decide about a call of a run that has ended."""
        try:
            await withdraw_approval(self.runtime, approval, by=self.id, reason="the run has ended")
        except StagebellError as error:
            logger.warning("approval %s cannot be withdrawn: %s", approval, error)

    async def _set_timer(self, run_id: str, at_ms: int) -> None:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        await self._timers.schedule(RunOverdue(run_id=run_id), self.id, at=at, name=_timer_name(run_id))

    @property
    def _timers(self) -> Timers:
        return cast(Timers, self.runtime)

    def _cut_off(self) -> bool:
        """A message has interrupted: what was due has to be told again, whether it was begun or had still to wait.

        Returns:
            False when it is certain that it was not begun: this instance would have had to begin it.
        """
        sequence, told = self.state.control.sequence, self._told
        self._told = None
        self._note_told(None)
        return told != sequence or self._begun == sequence


def impossible(work: Due, text: str) -> Event:
    """What becomes of work that cannot be done."""
    match work:
        case RequestModel():
            return ModelFailed(text, now_ms(), final=True)
        case RunCalls(calls):
            results = tuple(ToolResult.error(each.call, ErrorCode.FATAL, text) for each in calls)
            return CallsHandled(results, now_ms(), fatal=text)
        case Compensate(undo):
            return Undone(undo.call.id, now_ms(), text)


def _timer_name(run_id: str) -> str:
    return f"deadline of {run_id}"


async def _answer(reply: str, message: Any) -> None:
    handle = DeferredReply(reply)
    try:
        await handle.answer(message)
    except DeferredReplyError as error:  # it was asked of a runtime that is gone
        logger.debug("a caller is not there any more: %s", error)
    except MessageError as error:
        await handle.fail(error)
