"""The actor around the loop: it takes tasks, does what is due a turn at a time, and answers whoever asks for a run.

    a message ──▶ event ──▶ next_step ──▶ the new state is committed with the turn; so are all messages that follow:
                                              results to those who wait · ContinueRun to itself, if something is due

What holds at all times
    - A turn does one thing that takes time, and its outcome is committed before the next one is begun.
    - What is due follows from the committed state alone. So a turn that is run again, on another worker, does what the
      first one would have done, and `ContinueRun` of a state that is past changes nothing.
    - A message that interrupts (`CancelRun`, `RunOverdue`) drops the turn that was open. Calls that it cut off are
      unsure from then on: their tools find out, or tell that nobody knows.
    - Nothing of a run is kept in memory alone, but for what can be made again from the state.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, cast

from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler, rpc
from pydantic import JsonValue

from stagebell.agents.acting import tell
from stagebell.agents.events import (
    Begin,
    CallApproved,
    CancelAsked,
    CancelBelow,
    Due,
    Event,
    Finish,
    HoldAsked,
    Overdue,
    PersonAnswered,
    RequestModel,
    RunReturned,
    TaskGiven,
)
from stagebell.agents.forks import bounded
from stagebell.agents.inquiries import (
    adopted,
    job_of,
    result_of,
    snapshot,
    status_of,
    what_happened,
    with_reader,
    with_readers,
    with_reply,
)
from stagebell.agents.limits import Limits
from stagebell.agents.loop import due, next_step
from stagebell.agents.messages import (
    AdoptRun,
    AnswerQuestion,
    AwaitRun,
    CancelRun,
    ContinueRun,
    DecideCall,
    HoldRun,
    InspectRun,
    ReadRun,
    RunAccepted,
    RunEnded,
    RunEvents,
    RunOverdue,
    RunSnapshot,
    StartRun,
    Task,
)
from stagebell.agents.state import Job, LoopState, dump_control, dump_entry, read_state
from stagebell.errors import DeferredReplyError, StagebellError, UnknownRun
from stagebell.messages.conversation import AnyEntry, RunResult
from stagebell.runtime.engine.deadlines import current_deadline, now_ms
from stagebell.runtime.engine.deferred import DeferredReply, defer_reply
from stagebell.runtime.engine.options import agent_options
from stagebell.runtime.engine.ports import Timers
from stagebell.runtime.engine.timers import TimerId

logger = logging.getLogger("stagebell")

_FIRST_PAUSE: Final = 0.2  # seconds before a request that failed is made again; each further one is twice as long
_LONGEST_PAUSE: Final = 10.0


@agent_options(interrupted_by=(CancelRun, RunOverdue), state_type="ModelAgent")
class RunAgent(RoutedAgent):
    """Base of agents that run tasks.

    Args:
        description: what the agent is.
        limits: the bounds of each of its runs.

    Raises:
        ValueError: nothing in them bounds a run.
    """

    def __init__(self, description: str, limits: Limits) -> None:
        super().__init__(description)
        self.limits = limits.check()
        self.state = LoopState()
        self._dumped: list[Any] = []
        self._dumped_of: Sequence[AnyEntry] = ()
        self._told: int | None = None  # the change after which this instance told itself to go on
        self._begun: int | None = None  # the one after which it began to do what is due

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

    def forget(self) -> None:
        """A run has ended, or another state was loaded: what was kept for it is not needed any more."""

    # -- tasks

    @rpc
    async def on_task(self, message: Task, ctx: MessageContext) -> RunResult | None:
        """Run a task; the reply comes when the run has ended."""
        number = blake2b(ctx.message_id.encode(), digest_size=4).hexdigest()
        content, refused = self.check_task(message)
        job = job_of(message, f"{self.id}#{number}", content, deadline=current_deadline(), reply=defer_reply())
        await self._accept(job, refused)
        return None

    @message_handler
    async def on_start(self, message: StartRun, ctx: MessageContext) -> RunAccepted:
        """Let a task become a run."""
        _check_run_id(message.run_id, self.id)
        content, refused = self.check_task(message.task)
        deadline = message.deadline if message.deadline is not None else current_deadline()
        job = job_of(message.task, message.run_id, content, deadline=deadline, parent=message.parent, path=message.path)
        await self._accept(job, refused)
        return self._accepted(message.run_id)

    async def _accept(self, job: Job, refused: str) -> None:
        if job.deadline is not None:
            await self._set_timer(job.run_id, job.deadline)
        await self._apply(TaskGiven(job, now_ms(), refused))

    # -- inquiries

    @rpc
    async def on_await(self, message: AwaitRun, ctx: MessageContext) -> RunResult | None:
        """Answer with the result of a run, when it has one."""
        result = result_of(self.state, message.run_id)
        if result is None:
            self.state = with_reply(self.state, message.run_id, defer_reply())
            await self._go_on()
        return result

    @rpc
    async def on_read(self, message: ReadRun, ctx: MessageContext) -> RunEvents | None:
        """Answer with what happened in a run, as soon as there is any of it."""
        events = what_happened(self.state, message.run_id, message.offset)
        if not (events.entries or events.ended):
            self.state = with_reader(self.state, message.run_id, message.offset, defer_reply())
            await self._go_on()
            return None
        return events

    @rpc
    async def on_inspect(self, message: InspectRun, ctx: MessageContext) -> RunSnapshot:
        """Answer with the state that a run is in."""
        status_of(self.state, message.run_id)
        await self._go_on()
        return snapshot(self.state, message.run_id, dict(await self.save_state()))

    # -- somebody interferes

    @message_handler
    async def on_hold(self, message: HoldRun, ctx: MessageContext) -> RunAccepted:
        """Let a run stand still, do one step, or go on."""
        status_of(self.state, message.run_id)
        await self._apply(HoldAsked(message.run_id, message.hold, now_ms()))
        return self._accepted(message.run_id)

    @message_handler
    async def on_cancel(self, message: CancelRun, ctx: MessageContext) -> RunAccepted:
        """Let a run end."""
        await self._apply(CancelAsked(message.run_id, now_ms(), message.why, self._may_have_cut_off()))
        return self._accepted(message.run_id)

    @message_handler
    async def on_overdue(self, message: RunOverdue, ctx: MessageContext) -> None:
        """The deadline of a run is over."""
        await self._apply(Overdue(message.run_id, now_ms(), self._may_have_cut_off()))

    @message_handler
    async def on_decide(self, message: DecideCall, ctx: MessageContext) -> RunAccepted:
        """A call that waited for an approval was decided about; the first decision counts."""
        status_of(self.state, message.run_id)
        if self._is_active(message.run_id):
            decided: JsonValue = message.model_dump(mode="json", include={"approved", "arguments", "reason"})
            await self._apply(CallApproved(message.call_id, decided, now_ms()))
        return self._accepted(message.run_id)

    @message_handler
    async def on_answer(self, message: AnswerQuestion, ctx: MessageContext) -> RunAccepted:
        """A person answered; the first answer counts."""
        status_of(self.state, message.run_id)
        if self._is_active(message.run_id):
            await self._apply(PersonAnswered(message.call_id, message.text, now_ms()))
        return self._accepted(message.run_id)

    @message_handler
    async def on_adopt(self, message: AdoptRun, ctx: MessageContext) -> RunAccepted:
        """Go on from another state."""
        if self.state.conversation and not message.replace:
            raise ValueError(f"{self.id} has a conversation: fork the run into another one")
        new = read_state(str(self.id), message.state)
        status_of(new, message.run_id)
        new = adopted(self.state, new) if message.replace else bounded(new, self.limits, now_ms())
        self._take(new)
        run = new.control.active
        if run is not None and run.deadline is not None:
            await self._set_timer(run.run_id, run.deadline)
        await self._go_on()
        return self._accepted(message.run_id)

    @message_handler
    async def on_ended(self, message: RunEnded, ctx: MessageContext) -> None:
        """A run that this one started has ended."""
        if not self._is_active(message.run_id):
            return
        refused, run = "", self.state.control.active
        kind = next((each.kind for each in run.pending if each.call.id == message.call_id), "") if run else ""
        if kind == "handoff" and message.result.output is not None:
            refused = await self.check_output(cast("JsonValue", message.result.output), ctx)
        await self._apply(RunReturned(message.call_id, message.result, now_ms(), refused))

    # -- the loop

    @message_handler
    async def on_continue(self, message: ContinueRun, ctx: MessageContext) -> None:
        """Do what is due."""
        sequence = self.state.control.sequence
        work = due(self.state) if message.sequence == sequence else None
        if work is None:
            return
        self._begun = sequence
        await self._apply(await self.perform(work, ctx))

    async def _apply(self, event: Event) -> None:
        """Let the loop move on, and do what that asks for."""
        before = self.state
        step = next_step(before, event, self.limits)
        self.state = step.state
        for action in step.actions:
            match action:
                case Begin(run) if run.deadline is not None and run.deadline != run.job.deadline:
                    await self._set_timer(run.run_id, run.deadline)
                case Finish(job, result):
                    await self._finish(job, result)
                case CancelBelow(payload):
                    await self._cancel_below(cast("dict[str, str]", payload))
                case _:
                    pass
        if self.state.control.readers:
            await self._answer_readers()
        await self._go_on()

    async def _go_on(self) -> None:
        """Tell this agent to do what is due, unless it was told."""
        sequence = self.state.control.sequence
        if self._told == sequence:
            return
        match due(self.state):
            case None:
                return
            case RequestModel(retries) if retries:
                delay = min(_FIRST_PAUSE * 2 ** (retries - 1), _LONGEST_PAUSE)
                await self._timers.schedule(ContinueRun(sequence=sequence), self.id, delay=delay)
            case _:
                await tell(self.runtime, ContinueRun(sequence=sequence), self.id)
        self._told = sequence

    async def _finish(self, job: Job, result: RunResult) -> None:
        self.forget()
        for reply in job.reply:
            await _answer(reply, result)
        if job.parent is not None:
            parent = job.parent
            ended = RunEnded(run_id=parent.run_id, call_id=parent.call_id, result=result)
            try:
                await tell(self.runtime, ended, AgentId.from_str(parent.agent))
            except StagebellError as error:
                logger.warning("%s cannot be told that run %s has ended: %s", parent.agent, job.run_id, error)
        if job.deadline is not None or self.limits.timeout is not None or job.limits is not None:
            await self._timers.cancel_timer(str(_timer(self.id, job.run_id)))

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

    async def _set_timer(self, run_id: str, at_ms: int) -> None:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        await self._timers.schedule(RunOverdue(run_id=run_id), self.id, at=at, name=_timer_name(run_id))

    @property
    def _timers(self) -> Timers:
        return cast(Timers, self.runtime)

    def _is_active(self, run_id: str) -> bool:
        active = self.state.control.active
        return active is not None and active.run_id == run_id

    def _may_have_cut_off(self) -> bool:
        """False when it is certain that what is due was not begun: this instance would have had to begin it."""
        sequence = self.state.control.sequence
        return self._told != sequence or self._begun == sequence

    def _accepted(self, run_id: str) -> RunAccepted:
        return RunAccepted(run_id=run_id, status=status_of(self.state, run_id))

    # -- state

    async def save_state(self) -> Mapping[str, Any]:
        """The three sections; entries that were written before are not written anew."""
        entries, known = self.state.conversation, len(self._dumped_of)
        if known > len(entries) or (known and entries[known - 1] is not self._dumped_of[-1]):
            self._dumped, known = [], 0
        self._dumped.extend(dump_entry(entry) for entry in entries[known:])
        self._dumped_of = entries
        control = dump_control(self.state.control)
        return {"conversation": self._dumped, "control": control, "business": self.state.business}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `save_state` gave.

        Raises:
            MalformedState: it is no such state; the error names the section and the field.
        """
        self._take(read_state(str(self.id), state))

    def _take(self, state: LoopState) -> None:
        self.state = state
        self._told = self._begun = None
        self.forget()


def _timer_name(run_id: str) -> str:
    return f"deadline of {run_id}"


def _timer(agent: AgentId, run_id: str) -> TimerId:
    return TimerId.make(agent, _timer_name(run_id))


def _check_run_id(run_id: str, agent: AgentId) -> None:
    if run_id.rpartition("#")[0] != str(agent):
        raise UnknownRun(run_id, f"it is not one of {agent}")


async def _answer(reply: str, message: Any) -> None:
    try:
        await DeferredReply(reply).answer(message)
    except DeferredReplyError as error:  # it was asked of a runtime that is gone
        logger.debug("a caller is not there any more: %s", error)
