"""Runs as they were stored last, read without any agent and without a worker."""

from __future__ import annotations

from typing import NamedTuple

from autogen_core import AgentId

from stagebell.agents.inquiries import status_of
from stagebell.agents.state import LoopState, read_state
from stagebell.agents.trajectory import runs_in
from stagebell.errors import MalformedState, UnknownRun
from stagebell.messages.conversation import Finished, RunStatus, TerminationReason
from stagebell.runtime.engine.ports import SavedStates


class StoredRun(NamedTuple):
    """A run in a few words.

    Attributes:
        run_id: names it.
        status: how it stands.
        reason: why it ended, if it has.
        steps: how many answers its model gave.
        last_tool: the tool that was called last, if any.
        began: in milliseconds since the epoch; None while it waits in line.
        waits_for: the calls that wait for a person or for another run.
        text: of a run that did not succeed: what happened, and what to do.
    """

    run_id: str
    status: RunStatus
    reason: TerminationReason | None
    steps: int
    last_tool: str | None
    began: int | None
    waits_for: tuple[str, ...]
    text: str = ""


def agent_of(run_id: str) -> AgentId:
    """The conversation of a run. Raises UnknownRun when this is no id of one."""
    agent, _, number = run_id.rpartition("#")
    try:
        id = AgentId.from_str(agent)
    except ValueError as error:
        raise UnknownRun(run_id, str(error) if agent else "") from None
    if not number:
        raise UnknownRun(run_id)
    return id


async def stored_conversation(states: SavedStates, run_id: str) -> LoopState:
    """The state of a run's conversation, as it was stored last.

    Raises:
        UnknownRun: no such run is stored.
        MalformedState: what is stored is no conversation.
    """
    agent = agent_of(run_id)
    found = (await states.saved_states(agent.type, agent.key)).get(agent.key)
    if found is None:
        raise UnknownRun(run_id, f"nothing is stored of {agent}")
    state = read_state(str(agent), found)
    status_of(state, run_id)
    return state


async def stored_runs(states: SavedStates, agent_type: str) -> tuple[list[StoredRun], int]:
    """All runs of the agents of a type, the newest first, and how many states of them are no conversation."""
    found: list[StoredRun] = []
    others = 0
    for key, data in (await states.saved_states(agent_type)).items():
        try:
            state = read_state(f"{agent_type}/{key}", data)
        except MalformedState:
            others += 1
            continue
        found += [_told(state, run_id) for run_id in runs_in(state.conversation)]
        found += [StoredRun(job.run_id, RunStatus.WAITING, None, 0, None, None, ()) for job in state.control.queue]
    return sorted(found, key=lambda run: (run.began is not None, -(run.began or 0))), others


def _told(state: LoopState, run_id: str) -> StoredRun:
    entries = [entry for entry in state.conversation if entry.run_id == run_id]
    ended = next((entry for entry in reversed(entries) if isinstance(entry, Finished)), None)
    active = state.control.active
    began, steps = entries[0].at, entries[-1].step
    if ended is not None or active is None or active.run_id != run_id:
        reason, tool, text = (ended.reason, ended.last_tool, ended.text) if ended is not None else (None, None, "")
        return StoredRun(run_id, status_of(state, run_id), reason, steps, tool, began, (), text)
    waits = tuple(f"{each.kind} {each.call_id}" for each in active.waiting_for)
    return StoredRun(run_id, active.status, None, steps, active.last_tool, began, waits)
