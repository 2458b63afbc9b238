"""One move of the loop while it is made: what is to become of the state, and what is to be done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from stagebell.agents.events import UNCHANGED, Effect
from stagebell.agents.limits import Limits
from stagebell.agents.state import Hold, Job, LoopState, Run
from stagebell.messages.conversation import AnyEntry, Decided, Noted, Returned
from stagebell.messages.tool_calls import ToolCall, ToolResult, UseTools


class Move:
    """Collects what an event changes; whoever changes `run` or `queue`, adds or acts, has made a change.

    Args:
        before: the state before the event.
        at: when that came, in milliseconds since the epoch.
        limits: those of the agent.
    """

    def __init__(self, before: LoopState, at: int, limits: Limits) -> None:
        self._before = before
        self._entries: list[AnyEntry] = []
        self.at = at
        self.limits = limits
        self.run = before.control.active
        self.queue: tuple[Job, ...] = before.control.queue
        self.ended: Run | None = None
        self.business = before.business
        self.effects: list[Effect] = []

    @property
    def changed(self) -> bool:
        """True when the state after the event is another one."""
        control = self._before.control
        return bool(
            self._entries
            or self.effects
            or self.run is not control.active
            or self.queue is not control.queue
            or self.business is not self._before.business
        )

    def state(self) -> LoopState:
        """The state after the event."""
        control = self._before.control
        run = self.run or self.ended or control.run
        entries = (*self._before.conversation, *self._entries) if self._entries else self._before.conversation
        after = control.but(run=run, queue=self.queue, sequence=control.sequence + 1, told=None)
        return self._before.but(conversation=entries, control=after, business=self.business)

    # -- what the event meets

    def open(self) -> Run | None:
        """The run that goes on; None when there is none, or what it did is being undone."""
        return None if self.run is None or self.run.ending is not None else self.run

    def asked(self) -> Run | None:
        """The run whose model was asked; None when there is none."""
        run = self.open()
        return None if run is None or run.pending else run

    def hold_after(self, run: Run) -> Hold:
        """Whether the run may go on after something was done."""
        return "paused" if run.hold == "once" else run.hold

    def knows(self, run_id: str) -> bool:
        """True when there is, or was, a run of this id."""
        if self.run is not None and self.run.run_id == run_id:
            return True
        known = any(job.run_id == run_id for job in self.queue)
        return known or any(entry.run_id == run_id for entry in reversed(self._before.conversation))

    def latest_round(self) -> tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]]:
        """The calls of the latest decision for tools, and the results that came since."""
        results: list[ToolResult] = []
        for entries in (self._entries, self._before.conversation):
            for entry in reversed(entries):
                if isinstance(entry, Returned):
                    results.append(entry.result)
                elif isinstance(entry, Decided):
                    calls = entry.decision.calls if isinstance(entry.decision, UseTools) else ()
                    return calls, tuple(reversed(results))
        return (), tuple(reversed(results))

    # -- what it changes

    def stamp(self) -> dict[str, Any]:
        """What each entry says of the run that goes on."""
        assert self.run is not None
        return {"run_id": self.run.run_id, "step": self.run.step, "at": self.at}

    def add(self, entry: AnyEntry) -> None:
        """Something happened."""
        self._entries.append(entry)

    def act(self, effect: Effect) -> None:
        """Something is to be done."""
        self.effects.append(effect)

    def change_business(self, business: JsonValue) -> None:
        """The business section is to be this; that is noted, so that it can be told what it was after each step."""
        if business != UNCHANGED:
            self.business = business
            self.add(Noted(**self.stamp(), what="business", data=business))

    def interrupted(self) -> None:
        """The event may have cut off what was under way: that may have taken effect, and nothing of it is noted."""
        run = self.run
        if run is None or run.hold == "paused":
            return
        if run.ending is not None:
            self.run = run.but(undo=(*run.undo[:-1], replace(run.undo[-1], unsure=True)))
            return
        ready = {each.call.id for each in run.ready() if each.kind == "tool" and not each.refused}
        if ready:
            pending = (replace(each, unsure=each.unsure or each.call.id in ready) for each in run.pending)
            self.run = run.but(pending=tuple(pending))
