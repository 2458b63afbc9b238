"""Runs as things of their own: started here, awaited there, cancelled by a third process that knows the id alone.

    runs = Runs(runtime)                                    # any runtime of stagebell, or a Publisher
    handle = await runs.start("assistant", "20 + 22?")
    async for happened in handle.events():
        print(happened.entry)
    print(await handle.result())

An id, `<agent type>/<conversation>#<number>`, leads to its run from everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, cast, runtime_checkable
from uuid import uuid4

from autogen_core import AgentId, AgentRuntime, CancellationToken, try_get_known_serializers_for_type
from pydantic import JsonValue, TypeAdapter
from typing_extensions import TypeVar

from stagebell.agents.archive import agent_of, stored_conversation
from stagebell.agents.explaining import Explanation, explain
from stagebell.agents.forks import fork_state
from stagebell.agents.inquiries import what_happened
from stagebell.agents.limits import Limits
from stagebell.agents.messages import (
    REPLIES,
    REQUESTS,
    AdoptRun,
    AnswerQuestion,
    AwaitRun,
    CancelRun,
    HoldRun,
    InspectRun,
    ReadRun,
    RunAccepted,
    RunEvents,
    RunSnapshot,
    StartRun,
    Task,
    TokenChunk,
)
from stagebell.agents.phases import Phase, phases_of
from stagebell.agents.state import Hold, LoopState, dump_state, read_state
from stagebell.agents.tokens import Pieces, reader_of
from stagebell.errors import CantHandle, RunFailed, StagebellError, WrongType
from stagebell.messages.conversation import AnyEntry, Noted, RunResult, RunStatus
from stagebell.runtime.engine.ports import SavedStates

Output = TypeVar("Output", default=Any)


@runtime_checkable
class Caller(Protocol):
    """What calls agents from outside of all runtimes: a `Publisher`."""

    def register(self, *types: Any) -> None: ...

    async def call(self, message: Any, recipient: AgentId) -> Any: ...


@dataclass(frozen=True, slots=True)
class Happened:
    """Something happened in a run; with `offset`, reading goes on after it."""

    entry: AnyEntry
    offset: int

    @property
    def step(self) -> int:
        """How many answers the model had given then, this one included."""
        return self.entry.step

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of the run that it tells of, in order."""
        return phases_of(self.entry)


class Runs:
    """The runs of agents, reached through a runtime or a `Publisher`.

    Args:
        runtime: one that hosts the agents, or shares its namespace with those that do.
    """

    def __init__(self, runtime: AgentRuntime | Caller) -> None:
        self._runtime = runtime
        if isinstance(runtime, Caller):
            runtime.register(*REPLIES)
        else:
            for cls in (*REPLIES, *REQUESTS):
                runtime.add_message_serializer(try_get_known_serializers_for_type(cls))

    async def start(
        self,
        agent: str,
        task: str | Task,
        *,
        conversation: str | None = None,
        deps_key: str = "",
        business: Mapping[str, JsonValue] | None = None,
        limits: Limits | None = None,
        paused: bool = False,
        tokens: bool = False,
        output_type: type[Output] | None = None,
    ) -> RunHandle[Output]:
        """Start a run; it is stored when this returns.

        Args:
            agent: the type of the agent.
            task: what it is to do; a whole `Task` says the other things itself.
            conversation: the one that the run goes on with; by default a new one.
            deps_key: see `Task`.
            business: see `Task`.
            limits: see `Task`.
            paused: see `Task`.
            tokens: the answers are to be read while they are written, with `RunHandle.tokens`.
            output_type: the type that the output is read as here.

        Raises:
            Undeliverable: nobody hosts the agent's type.
            ValueError: the agent cannot take such a task; or tokens are wanted of a `Publisher`, which hosts no agent.
        """
        key = AgentId(agent, uuid4().hex[:12] if conversation is None else conversation)
        if isinstance(task, str):
            facts = None if business is None else dict(business)
            task = Task(content=task, deps_key=deps_key, business=facts, limits=limits, paused=paused)
        run_id = f"{key}#{uuid4().hex[:8]}"
        pieces = await reader_of(self._runtime, run_id) if tokens else None
        tokens_to = "" if pieces is None else pieces.address
        handle = RunHandle(self, run_id, output_type, pieces)
        await self.ask(StartRun(run_id=handle.run_id, task=task, tokens_to=tokens_to), handle.agent)
        return handle

    async def run(
        self,
        agent: str,
        task: str | Task,
        *,
        cancellation_token: CancellationToken | None = None,
        output_type: type[Output] | None = None,
        **options: Any,
    ) -> RunResult[Output]:
        """Start a run and wait for its end. Whoever cancels this, by the token or its task, cancels the run.

        Args:
            agent: as for `start`; `options` too.
            task: as for `start`.
            cancellation_token: cancels the run.
            output_type: as for `start`.

        Raises:
            asyncio.CancelledError: it was cancelled.
            Exception: as `start` does.
        """
        handle = await self.start(agent, task, output_type=output_type, **options)
        waiting = asyncio.ensure_future(handle.result())
        if cancellation_token is not None:
            cancellation_token.link_future(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(handle.cancel()))
            raise

    def get(self, run_id: str, *, output_type: type[Output] | None = None) -> RunHandle[Output]:
        """The handle of a run. Raises UnknownRun when this is no id of one."""
        return RunHandle(self, run_id, output_type)

    async def cancel(self, run_id: str) -> RunStatus:
        """Let a run end; see `RunHandle.cancel`."""
        return await self.get(run_id).cancel()

    async def save_state(self, run_id: str) -> dict[str, Any]:
        """The state of a run's conversation: three sections, as JSON data. Raises UnknownRun."""
        return dump_state(await self.get(run_id).state())

    async def load_state(self, run_id: str, state: Mapping[str, Any]) -> None:
        """Let a run go on from this state, in the place of the one it has, if it has any.

        Raises:
            MalformedState: it is no such state.
            UnknownRun: the run is not in it.
        """
        handle = self.get(run_id)
        await self.ask(AdoptRun(run_id=run_id, state=dict(state), replace=True), handle.agent)

    async def known(self, run_id: str) -> LoopState | None:
        """What is stored of a run's conversation, without waiting for its agent; None when that cannot be said."""
        if not hasattr(self._runtime, "saved_states"):
            return None
        try:
            return await stored_conversation(cast(SavedStates, self._runtime), run_id)
        except StagebellError:
            return None  # its agent knows, or says why not

    async def ask(self, message: Any, agent: AgentId) -> Any:
        """Call an agent.

        Raises:
            WrongType: its class makes no runs.
        """
        try:
            if isinstance(self._runtime, Caller):
                return await self._runtime.call(message, agent)
            return await self._runtime.send_message(message, agent)
        except CantHandle:
            raise WrongType(
                f"the agents of type {agent.type!r} make no runs, so there is none to start or to ask for: `Runs` is "
                "for ModelAgent and what derives from its loop. To others send the messages that they handle"
            ) from None


class RunHandle(Generic[Output]):
    """One run, wherever it goes on. Every method raises `UnknownRun` when its conversation knows of no such run.

    Attributes:
        run_id: names it.
        agent: its conversation.
    """

    def __init__(
        self, runs: Runs, run_id: str, output_type: type[Output] | None = None, pieces: Pieces | None = None
    ) -> None:
        self.agent = agent_of(run_id)
        self.run_id = run_id
        self._runs = runs
        self._pieces = pieces
        self._output: TypeAdapter[Output] | None = None if output_type is None else TypeAdapter(output_type)

    def __repr__(self) -> str:
        return f"<run {self.run_id}>"

    async def result(self) -> RunResult[Output]:
        """Wait for the end of the run; its result, with the output as the type that `start` or `get` was given."""
        result = cast("RunResult[Output]", await self._ask(AwaitRun(run_id=self.run_id)))
        if self._output is None or result.status is not RunStatus.SUCCEEDED:
            return result
        return result.model_copy(update={"output": self._output.validate_python(result.output)})

    async def output(self) -> Output:
        """Wait for the output of the run. Raises RunFailed when it ends without one."""
        result = await self.result()
        if result.status is not RunStatus.SUCCEEDED:
            raise RunFailed(self.run_id, result.status, result.reason, result.text)
        return cast("Output", result.output)

    async def events(self, offset: int = 0) -> AsyncGenerator[Happened, None]:
        """What happens in the run, from the beginning or from the offset of an earlier event on, until it ends.

        What is known already comes at once, also while a step is being made; what a step comes to, when it is over.

        Raises:
            ValueError: the offset is below 0.
        """
        if offset < 0:
            raise ValueError(f"an offset is 0 or that of an earlier event, not {offset}")
        state, ended = await self._runs.known(self.run_id), False
        known = None if state is None else what_happened(state, self.run_id, offset)
        while not ended:
            events = known or cast("RunEvents", await self._ask(ReadRun(run_id=self.run_id, offset=offset)))
            known = None
            for entry, position in zip(events.entries, events.positions, strict=True):
                yield Happened(entry, position + 1)
            offset, ended = events.offset, events.ended

    async def tokens(self) -> AsyncGenerator[TokenChunk, None]:
        """What the model writes, piece by piece from the first on, until the run ends; for a run started with `tokens`.

        That covers every answer, those of an agent that takes over too: `run_id`, `step` and `index` tell them apart. A
        request that is made again, after an error or a crash, begins its answer anew with index 0. Nobody waits for who
        reads: leaving the loop, or staying away, leaves the run alone. It is read once.

        Raises:
            ValueError: this is not the handle that `start` gave for `tokens=True`.
        """
        if self._pieces is None:
            raise ValueError(f"nobody listens to {self.run_id}: start it with tokens=True, and use the handle of that")
        async for chunk in self._pieces:
            yield chunk

    async def status(self) -> RunStatus:
        """How the run stands, between two of its steps."""
        return (await self._inspect()).status

    async def state(self) -> LoopState:
        """The state of its conversation, between two of its steps."""
        return read_state(str(self.agent), (await self._inspect()).state)

    async def explain(self) -> Explanation:
        """Why it went as it did, or goes now, from the answers of the model to its end; `str` of it is for people."""
        return explain(await self._runs.known(self.run_id) or await self.state(), self.run_id)

    async def cancel(self, why: str = "") -> RunStatus:
        """Let the run end, at once whatever it is doing; what it did is undone where tools say how.

        Returns:
            How it stands then; a run that had ended stays as it was.
        """
        return await self._do(CancelRun(run_id=self.run_id, why=why))

    async def pause(self) -> RunStatus:
        """Let the run stand still; the step that is being made is made to its end first."""
        return await self._hold("paused")

    async def resume(self) -> RunStatus:
        """Let it go on."""
        return await self._hold("go")

    async def step(self) -> RunStatus:
        """Let a paused run do one thing (ask the model, or run calls), and wait until that is done, or itself waits."""
        snapshot = await self._inspect()
        if snapshot.status is not RunStatus.PAUSED:
            return snapshot.status
        offset = len(snapshot.state["conversation"])
        await self._hold("once")
        while True:
            events = cast("RunEvents", await self._ask(ReadRun(run_id=self.run_id, offset=offset)))
            offset = events.offset
            if events.ended or any(_ends_step(entry) for entry in events.entries):
                return await self.status()

    async def fork(
        self, step: int, edit: Callable[[LoopState], LoopState] | None = None, *, conversation: str | None = None
    ) -> RunHandle[Output]:
        """Another run, in a conversation of its own, that begins where this one stood after a step.

        Args:
            step: after how many answers of the model; 0 is the beginning.
            edit: what the state is changed to before the new run goes on.
            conversation: its name; by default a new one.

        Raises:
            ValueError: the step is below 0; the run did not come so far, gave its output in that step, or calls of it
                have no result; or the conversation exists.
        """
        key = f"{self.agent.key}~{uuid4().hex[:8]}" if conversation is None else conversation
        agent = AgentId(self.agent.type, key)
        run_id = f"{agent}#{uuid4().hex[:8]}"
        forked = fork_state(await self.state(), self.run_id, step, run_id)
        if edit is not None:
            forked = edit(forked)
        await self._runs.ask(AdoptRun(run_id=run_id, state=dump_state(forked)), agent)
        handle = RunHandle[Output](self._runs, run_id)
        handle._output = self._output
        return handle

    async def answer(self, call_id: str, text: str) -> RunStatus:
        """Answer a question that the run waits for. Raises UnknownQuestion when it waits for no such answer."""
        return await self._do(AnswerQuestion(run_id=self.run_id, call_id=call_id, text=text))

    async def _hold(self, hold: Hold) -> RunStatus:
        return await self._do(HoldRun(run_id=self.run_id, hold=hold))

    async def _do(self, message: Any) -> RunStatus:
        return cast("RunAccepted", await self._ask(message)).status

    async def _inspect(self) -> RunSnapshot:
        return cast("RunSnapshot", await self._ask(InspectRun(run_id=self.run_id)))

    async def _ask(self, message: Any) -> Any:
        return await self._runs.ask(message, self.agent)


def _ends_step(entry: AnyEntry) -> bool:
    """True for what a step comes to: an answer, results, or that the run waits for somebody."""
    return not isinstance(entry, Noted) or entry.what == "model_failed" or entry.what.startswith("waits_for_")
