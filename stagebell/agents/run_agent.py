"""The actor around the loop: it takes tasks, does what is due a turn at a time, and answers whoever asks for a run.

    a message ──▶ event ──▶ next_step ──▶ the new state is committed with the turn; so are all messages that follow:
                                              results to those who wait · ContinueRun to itself, if something is due

What holds at all times
    - A turn does one thing that takes time, and its outcome is committed before the next one is begun.
    - What is due follows from the committed state alone. So a turn that is run again, on another worker, does what the
      first one would have done, and `ContinueRun` of a state that is past changes nothing.
    - A message that interrupts (`CancelRun`, `RunOverdue`) drops the `ContinueRun` that was being handled, or waited.
      Calls that it cut off are unsure from then on: their tools find out, or tell that nobody knows.
    - Nothing of a run is kept in memory alone, but for what can be made again from the state.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, cast

from autogen_core import (
    AgentId,
    AgentRuntime,
    AgentType,
    MessageContext,
    message_handler,
    rpc,
    try_get_known_serializers_for_type,
)
from pydantic import JsonValue

from stagebell.agents.contained import contained, contained_call
from stagebell.agents.events import (
    CallApproved,
    CancelAsked,
    HoldAsked,
    Overdue,
    PersonAnswered,
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
    with_reply,
)
from stagebell.agents.kept import KeptActor
from stagebell.agents.messages import (
    AdoptRun,
    AnswerQuestion,
    AwaitRun,
    CancelRun,
    ContinueRun,
    HoldRun,
    InspectRun,
    PieceWritten,
    Question,
    ReadRun,
    RunAccepted,
    RunEnded,
    RunEvents,
    RunOverdue,
    RunSnapshot,
    StartRun,
    Task,
    TokenChunk,
)
from stagebell.agents.not_taken import what_follows
from stagebell.agents.state import Job, read_state
from stagebell.errors import DeferredReplyError, ServerError, UnknownQuestion, UnknownRun
from stagebell.messages.conversation import RunResult
from stagebell.messages.set_aside import SetAside
from stagebell.messages.tool_calls import ErrorCode
from stagebell.runtime.engine.deadlines import current_deadline, now_ms
from stagebell.runtime.engine.deferred import defer_reply
from stagebell.runtime.engine.options import agent_options
from stagebell.tools.approval_messages import ApprovalDecision
from stagebell.tools.approvals import register_desk
from stagebell.tools.policy import text_of

_PUBLISHED: Final = (Question, TokenChunk, PieceWritten)


@agent_options(interrupted_by={ContinueRun: (CancelRun, RunOverdue)}, state_type="ModelAgent")
class RunAgent(KeptActor):
    """Base of agents that run tasks: the messages that they handle. See `KeptActor`."""

    @classmethod
    async def register(
        cls, runtime: AgentRuntime, type: str, factory: Any, *, approvals: bool = True, **options: Any
    ) -> AgentType:
        """Register the agents of a type, as every `RoutedAgent` is registered.

        Args:
            runtime: where they will live.
            type: what they are called.
            factory: makes one.
            approvals: take part in running the desk where calls wait for a person.
            options: as for every `RoutedAgent`.
        """
        for each in _PUBLISHED:
            runtime.add_message_serializer(try_get_known_serializers_for_type(each))
        if approvals:
            await register_desk(runtime)
        return await super().register(runtime, type, factory, **options)

    # -- tasks

    @rpc
    async def on_task(self, message: Task, ctx: MessageContext) -> RunResult | None:
        """Run a task; the reply comes when the run has ended."""
        number = blake2b(ctx.message_id.encode(), digest_size=4).hexdigest()
        content, refused = contained_call(lambda: self.check_task(message))
        job = job_of(message, f"{self.id}#{number}", content, deadline=current_deadline(), reply=defer_reply())
        await self._accept(job, refused)
        return None

    @message_handler
    async def on_start(self, message: StartRun, ctx: MessageContext) -> RunAccepted:
        """Let a task become a run."""
        _check_run_id(message.run_id, self.id)
        content, refused = contained_call(lambda: self.check_task(message.task))
        deadline = message.deadline if message.deadline is not None else current_deadline()
        job = job_of(
            message.task,
            message.run_id,
            content,
            deadline=deadline,
            parent=message.parent,
            path=message.path,
            tokens_to=message.tokens_to,
        )
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
    async def on_cancel(self, message: CancelRun, ctx: MessageContext) -> RunAccepted | None:
        """Let a run end."""
        await self._apply(CancelAsked(message.run_id, now_ms(), message.why, self._cut_off()))
        try:
            return self._accepted(message.run_id)
        except UnknownRun as error:
            await _refuse(error)
            return None

    @message_handler
    async def on_overdue(self, message: RunOverdue, ctx: MessageContext) -> None:
        """The deadline of a run is over."""
        await self._apply(Overdue(message.run_id, now_ms(), self._cut_off()))

    @message_handler
    async def on_approval(self, message: ApprovalDecision, ctx: MessageContext) -> None:
        """A call that waited for an approval was decided about; the desk says so once."""
        if self._is_active(message.run_id):
            arguments = None if message.arguments is None else dict(message.arguments)
            decided: JsonValue = {"approved": message.approved, "arguments": arguments, "reason": message.reason}
            await self._apply(CallApproved(message.call_id, decided, now_ms()))

    @message_handler
    async def on_answer(self, message: AnswerQuestion, ctx: MessageContext) -> RunAccepted:
        """A person answered; the first answer counts, and another one is refused."""
        status_of(self.state, message.run_id)
        run = self.state.control.active if self._is_active(message.run_id) else None
        waited = run.waiting_for if run is not None else ()
        if not any(each.call_id == message.call_id and each.kind == "question" for each in waited):
            raise UnknownQuestion(message.run_id, message.call_id)
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
            refused = await self._why_not(cast("JsonValue", message.result.output), ctx)
        await self._apply(RunReturned(message.call_id, message.result, now_ms(), refused))

    @message_handler
    async def on_set_aside(self, message: SetAside, ctx: MessageContext) -> None:
        """A message to this agent, or a task that it gave to another one, will not be handled."""
        fatal = self.ends_run(ErrorCode.FATAL)
        event = what_follows(message, self.state, now_ms(), fatal=fatal, told=self._was_told or self._due() is None)
        try:
            if event is not None:
                await self._apply(event)
        except Exception as error:
            await self._disappoint(error, self.state)
            raise

    async def _why_not(self, output: JsonValue, ctx: MessageContext) -> str:
        """Why the output of an agent that took over is refused, if so; also when it cannot be checked."""
        try:
            return cast("str", await contained(self.check_output(output, ctx), ctx.cancellation_token))
        except ServerError:
            raise  # the turn comes again
        except Exception as error:
            return f"it could not be checked: {text_of(error)}"

    # -- the loop

    @message_handler
    async def on_continue(self, message: ContinueRun, ctx: MessageContext) -> None:
        """Do what is due."""
        work = self._due() if message.sequence == self.state.control.sequence else None
        if work is not None:
            await self._do(work, ctx)

    def _is_active(self, run_id: str) -> bool:
        active = self.state.control.active
        return active is not None and active.run_id == run_id

    def _accepted(self, run_id: str) -> RunAccepted:
        return RunAccepted(run_id=run_id, status=status_of(self.state, run_id))


async def _refuse(error: UnknownRun) -> None:
    """Answer with an error, and let the turn take effect nevertheless: what it has interrupted has to go on.

    Raises:
        UnknownRun: the call came from inside of the agent's own turn, which it has not interrupted.
    """
    try:
        reply = defer_reply()
    except DeferredReplyError:
        raise error from None
    await reply.fail(error)


def _check_run_id(run_id: str, agent: AgentId) -> None:
    if run_id.rpartition("#")[0] != str(agent):
        raise UnknownRun(run_id, f"it is not one of {agent}")
