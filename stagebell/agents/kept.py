"""Conversations that outlive the process on a runtime that keeps nothing: each change is saved in a store.

    found (once) ──▶ a message is handled ──▶ the state has changed ──▶ saved
                          └─ calls are due ──▶ saved as begun ──▶ the calls are made

What holds at all times
    - A change is saved before anybody is told of it.
    - Calls are saved as begun before they are made. Those that a dead process had begun are unsure when it is found
      again: their tools find out what became of them, or tell that nobody knows.
    - Nobody saves over what another process has saved meanwhile: that turn ends in `SnapshotConflict`, and the next one
      finds the newer state. So does the turn after one that was cancelled while it saved.

A conversation that is found again goes on with the first message for it, whatever that is. Nothing tells a process that
has died from one that is slow: one process at a time is to host the agents whose conversations a store keeps.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from typing import Any, Final

from autogen_core import MessageContext

from stagebell.agents.events import Due, Effect, Event, RequestModel
from stagebell.agents.limits import Limits
from stagebell.agents.loop_actor import LoopActor
from stagebell.agents.moves import Move
from stagebell.agents.state import LoopState, dump_state
from stagebell.agents.stores.port import RunStore, Snapshot
from stagebell.errors import SnapshotBroken, SnapshotConflict
from stagebell.messages.set_aside import SetAside
from stagebell.runtime.engine.deadlines import now_ms
from stagebell.runtime.engine.migrations import StateForm, StoredState, state_form
from stagebell.runtime.engine.turn import current_turn

_FIELDS: Final = {"type": str, "version": int, "begun": bool, "state": dict}


class KeptActor(LoopActor):
    """A `LoopActor` whose conversation may be kept in a store.

    Args:
        description: what the agent is.
        limits: the bounds of each of its runs.
        store: where its conversation is kept; None leaves that to the runtime.
    """

    def __init__(self, description: str, limits: Limits, store: RunStore | None = None) -> None:
        super().__init__(description, limits)
        self._store = store
        self.keeps_moves = store is not None
        self._saved: LoopState | None = None  # None: what the store has is not known
        self._saves = 0

    async def save_state(self) -> Mapping[str, Any]:
        """The state; with a store, as it was saved there last, since nobody is told of what is not."""
        if self._store is None or self._saved is None or self._saved is self.state:
            return await super().save_state()
        return dump_state(self._saved)

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        """Handle a message; with a store, on what it has, and saved there before the reply is given."""
        if self._store is None:
            return await super().on_message_impl(message, ctx)
        if self._saved is None:
            if isinstance(message, SetAside):
                return None  # another process has the conversation now, and goes on with it
            await self._find(self._store)
        result = await super().on_message_impl(message, ctx)
        if self.state is not self._saved:
            await self._save(self._store, begun=False)
        return result

    async def _outcome(self, work: Due, ctx: MessageContext) -> Event:
        if self._store is not None and not isinstance(work, RequestModel):
            await self._save(self._store, begun=True)
        return await super()._outcome(work, ctx)

    async def _act_on(self, effects: Sequence[Effect]) -> None:
        if self._store is not None:
            before = self._saved
            try:
                await self._save(self._store, begun=False)
            except BaseException:
                self.state = before or self.state  # what was not saved has not happened
                raise
        await super()._act_on(effects)

    def _note_told(self, sequence: int | None) -> None:
        if self._store is None:
            super()._note_told(sequence)

    async def _find(self, store: RunStore) -> None:
        _refuse_second_store(str(self.id))
        key = str(self.id)
        snapshot = await store.load(key)
        if snapshot is None:
            self._saves, self._saved = 0, self.state
            return
        stored, begun = _read(key, snapshot)
        await self.load_state(self._form.read(key, stored))
        self._saves, self._saved = snapshot.version, self.state
        if begun:
            move = Move(self.state, now_ms(), self.limits)
            move.interrupted()
            self.state = move.state() if move.changed else self.state
        run = self.state.control.active
        if run is not None and run.deadline is not None:
            await self._set_timer(run.run_id, run.deadline)
        await self._go_on()

    async def _save(self, store: RunStore, *, begun: bool) -> None:
        state = self.state
        form = self._form
        fields: dict[str, Any] = {"type": form.type, "version": form.version, "begun": begun}
        snapshot = Snapshot(self._saves + 1, {**fields, "state": dict(await super().save_state())})
        try:
            await store.save(str(self.id), snapshot)
        except SnapshotConflict as error:
            before, self._saved = self._saved, None
            await self._disappoint(error, before or self.state)
            raise
        except CancelledError:
            self._saved = None  # it may have been saved all the same
            raise
        self._saves += 1
        self._saved = state

    @property
    def _form(self) -> StateForm:
        return state_form(type(self))


def _read(key: str, snapshot: Snapshot) -> tuple[StoredState, bool]:
    found = snapshot.state
    for name, kind in _FIELDS.items():
        if type(found.get(name)) is not kind:
            raise SnapshotBroken(key, f"version {snapshot.version}", f"field {name!r} is not a {kind.__name__}")
    fields: dict[str, Any] = dict(found)
    return StoredState(fields["type"], fields["version"], fields["state"]), fields["begun"]


def _refuse_second_store(agent: str) -> None:
    turn = current_turn.get()
    if turn is not None and turn.receipt is not None:
        raise ValueError(f"{agent} has a store, and its runtime keeps the state itself, with each turn: leave it out")
