"""The state of a conversation with a model, in three sections: what was said, how the run stands, what the user keeps.

    conversation   everything that happened, oldest first (messages/conversation.py); it only grows
    control        the run that goes on or was the last, and the tasks that wait in line behind it
    business       the user's facts, as JSON; what they mean is for the user's pydantic model

It is data: JSON in and out, and the next step depends on nothing else (loop.py). What each part of `control` tells
could not be told from the conversation alone: whether a call waits for an approval, whether it was done or is still to
be done, what has to be undone when the run fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

from stagebell.agents.limits import Limits
from stagebell.errors import MalformedState
from stagebell.messages.conversation import (
    AnyEntry,
    Entry,
    Finished,
    RunResult,
    RunStatus,
    TerminationReason,
    Usage,
)
from stagebell.messages.reasons import explain
from stagebell.messages.tool_calls import ToolCall, ToolResult

_CLOSED: Final = ConfigDict(extra="forbid", ser_json_inf_nan="constants")
_NONE: Final = Usage()

CallKind = Literal["tool", "run", "handoff", "question"]
WaitKind = Literal["approval", "run", "question"]
Hold = Literal["go", "once", "paused"]


class Changing:
    """Base of frozen dataclasses that each step changes."""

    def but(self, **changes: Any) -> Self:
        """The same with other values; what `dataclasses.replace` does, in a tenth of the time."""
        made = object.__new__(type(self))
        object.__setattr__(made, "__dict__", self.__dict__ | changes)
        return made


@dataclass(frozen=True, slots=True)
class Parent:
    """Who started a run and waits for its end: the call of a run of another agent."""

    __pydantic_config__ = _CLOSED

    agent: str
    run_id: str
    call_id: str


@dataclass(frozen=True)
class Job(Changing):
    """What a run is to do, and for whom.

    Attributes:
        run_id: names the run.
        content: the task.
        source: who gave it.
        deps_key: tells the factory of dependencies for whom they are.
        business: facts that the business section gets when the run begins.
        limits: bounds that come with the task, narrower than those of the agent.
        deadline: when it has to be over, in milliseconds since the epoch.
        path: the agents whose runs led to this one, the first one first.
        parent: whose call it answers.
        reply: the handles of the callers that wait for its result.
        hold: "paused" for a run that is stepped by hand from the start.
        tokens_to: who reads its answers while they are written, as ``agent#reader``.
    """

    __pydantic_config__ = _CLOSED

    run_id: str
    content: str
    source: str = "user"
    deps_key: str = ""
    business: dict[str, JsonValue] | None = None
    limits: Limits | None = None
    deadline: int | None = None
    path: tuple[str, ...] = ()
    parent: Parent | None = None
    reply: tuple[str, ...] = ()
    hold: Hold = "go"
    tokens_to: str = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that has no result yet.

    Attributes:
        call: the call.
        group: those of one group may overlap; a group starts when the one before has all its results.
        kind: what it is done by: a tool, a run of another agent (which may take over), or a person.
        to: the agent's type, for a run.
        decided: what was decided about it, when it needed an approval.
        refused: why it is not made, if so; that is its result.
        unsure: it may have been made before, by a turn of which nothing is left.
    """

    __pydantic_config__ = _CLOSED

    call: ToolCall
    group: int = 0
    kind: CallKind = "tool"
    to: str = ""
    decided: JsonValue = None
    refused: str = ""
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a run waits for: the approval of a call, the end of a run, or the answer of a person."""

    __pydantic_config__ = _CLOSED

    call_id: str
    kind: WaitKind
    payload: JsonValue = None
    since: int = 0


@dataclass(frozen=True, slots=True)
class Undo:
    """A call that took effect, and whose tool says how to take it back; `unsure`: that may have been done before."""

    __pydantic_config__ = _CLOSED

    call: ToolCall
    result: ToolResult
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run will have ended once what it did is undone."""

    __pydantic_config__ = _CLOSED

    status: RunStatus
    reason: TerminationReason
    text: str


@dataclass(frozen=True)
class Run(Changing):
    """How a run stands.

    Attributes:
        job: what it is to do.
        limits: its bounds, those of the job included.
        deadline: when it has to be over, in milliseconds since the epoch.
        step: how many answers its model gave.
        steps_below: how many answers were given in the runs that it started.
        retries: how many requests to the model failed in a row.
        rejected: how many answers of the model were not valid.
        pending: the calls without a result, in order.
        waiting_for: what has to come from elsewhere before it goes on.
        hold: "paused" lets it do nothing, "once" one thing.
        usage: what its model, and those of the runs below, took.
        last_tool: the tool that was called last.
        rounds: the latest rounds of calls and results, as digest and number of times in a row.
        undo: what has to be undone when it fails, the first one first.
        ending: how it will have ended, once that is done.
        result: how it ended.
    """

    __pydantic_config__ = _CLOSED

    job: Job
    limits: Limits
    deadline: int | None = None
    step: int = 0
    steps_below: int = 0
    retries: int = 0
    rejected: int = 0
    pending: tuple[Pending, ...] = ()
    waiting_for: tuple[Waiting, ...] = ()
    hold: Hold = "go"
    usage: Usage = _NONE
    last_tool: str | None = None
    rounds: tuple[str, int] = ("", 0)
    undo: tuple[Undo, ...] = ()
    ending: Ending | None = None
    result: RunResult | None = None

    @property
    def run_id(self) -> str:
        """Names the run."""
        return self.job.run_id

    @property
    def terminated(self) -> bool:
        """True when it has its result."""
        return self.result is not None

    @property
    def steps(self) -> int:
        """The answers of models, in the runs below included."""
        return self.step + self.steps_below

    def ready(self) -> tuple[Pending, ...]:
        """The calls of the first group that has calls left, but for those that wait for something."""
        if not self.pending:
            return ()
        group = self.pending[0].group
        if not self.waiting_for:
            return tuple([each for each in self.pending if each.group == group])
        waiting = {each.call_id for each in self.waiting_for}
        return tuple(each for each in self.pending if each.group == group and each.call.id not in waiting)

    @property
    def status(self) -> RunStatus:
        """How it stands, in one word."""
        if self.result is not None:
            return self.result.status
        if self.hold == "paused" and self.ending is None:
            return RunStatus.PAUSED
        return RunStatus.WAITING if self.waiting_for else RunStatus.RUNNING


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody waits to be told what happens in a run: in entries of the conversation from `offset` on."""

    __pydantic_config__ = _CLOSED

    run_id: str
    offset: int
    reply: str


@dataclass(frozen=True)
class Control(Changing):
    """The run of a conversation that goes on, or was the last, and the tasks that wait for its end.

    Attributes:
        run: the run.
        queue: the tasks.
        sequence: counts the changes, so that a message that asks for the next step is told from one that came twice.
        readers: who waits to be told what happens next.
        told: the change after which the agent told itself to go on; that message came to be together with this state.
    """

    __pydantic_config__ = _CLOSED

    run: Run | None = None
    queue: tuple[Job, ...] = ()
    sequence: int = 0
    readers: tuple[Reader, ...] = ()
    told: int | None = None

    @property
    def active(self) -> Run | None:
        """The run that goes on, if any."""
        return None if self.run is None or self.run.terminated else self.run


@dataclass(frozen=True)
class LoopState(Changing):
    """All of it; see the top of this file."""

    conversation: tuple[AnyEntry, ...] = ()
    control: Control = field(default_factory=Control)
    business: JsonValue = None


_entry: TypeAdapter[AnyEntry] = TypeAdapter(Entry)
_entries: TypeAdapter[tuple[AnyEntry, ...]] = TypeAdapter(tuple[Entry, ...])
_control: TypeAdapter[Control] = TypeAdapter(Control)
_business: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def dump_entry(entry: AnyEntry) -> Any:
    """An entry as JSON data."""
    return _entry.dump_python(entry, mode="json")


def dump_control(control: Control) -> Any:
    """The control section as JSON data; what has its default is left out."""
    return _control.dump_python(_without_output(control), mode="json", exclude_defaults=True)


def write_entry(entry: AnyEntry) -> str:
    """An entry as JSON text."""
    return entry.model_dump_json()


def write_control(control: Control) -> str:
    """The control section as JSON text; what has its default is left out."""
    return _control.dump_json(_without_output(control), exclude_defaults=True).decode()


def _without_output(control: Control) -> Control:
    """The output of a run that has ended is in the conversation, and may be large."""
    run = control.run
    if run is None or run.result is None or run.result.output is None:
        return control
    return replace(control, run=run.but(result=run.result.model_copy(update={"output": None})))


def _with_output(control: Control, entries: Sequence[AnyEntry]) -> Control:
    run = control.run
    if run is None or run.result is None or run.result.output is not None:
        return control
    ended = next((each for each in reversed(entries) if each.run_id == run.run_id and isinstance(each, Finished)), None)
    if ended is None or ended.output is None:
        return control
    return replace(control, run=run.but(result=run.result.model_copy(update={"output": ended.output})))


def dump_state(state: LoopState) -> dict[str, Any]:
    """A state as JSON data."""
    return {
        "conversation": [dump_entry(entry) for entry in state.conversation],
        "control": dump_control(state.control),
        "business": state.business,
    }


def read_state(agent: str, data: Mapping[str, Any]) -> LoopState:
    """The state in JSON data; of nothing, a new one.

    Args:
        agent: whose it is, for the error.
        data: what `dump_state` gave.

    Raises:
        MalformedState: it is none; the error names the section and the field.
    """
    if unknown := data.keys() - {"conversation", "control", "business"}:
        raise MalformedState(agent, f"unknown sections: {', '.join(sorted(map(str, unknown)))}")
    section = "conversation"
    try:
        entries = _entries.validate_python(data.get("conversation", ()), strict=False)
        section = "control"
        control = _with_output(_control.validate_python(data.get("control", {})), entries)
        section = "business"
        return LoopState(entries, control, _business.validate_python(data.get("business")))
    except ValidationError as error:
        raise MalformedState(agent, f"{section}: {explain(error)}") from error
