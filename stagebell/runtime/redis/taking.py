"""How a turn takes the replies to its calls, one after the other and never while a nested turn runs above it.

In memory, replies may come in any order and at any time. A turn of an agent that keeps state takes them
    - in the order in which they came, and only while no nested turn is open: else its code would run inside the nested
      turn, and the savepoint of that turn would hold half of what it did;
    - when it runs again, up to its last savepoint, in the order of its first run (the rule is in `savepoints`).
A nested turn begins when what the turn did on the last reply is done.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Event, Task
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from stagebell.errors import StateMismatch
from stagebell.messages.envelope import Envelope
from stagebell.runtime.engine.snapshots import bring_back
from stagebell.runtime.redis.savepoints import (
    Await,
    Below,
    LetIn,
    Load,
    Over,
    Replay,
    Savepoint,
    Take,
    find_inner,
    place,
    read_savepoints,
)
from stagebell.runtime.redis.storage import Stored
from stagebell.runtime.redis.wire import decode_state

if TYPE_CHECKING:
    from stagebell.runtime.redis.replies import OpenCall
    from stagebell.runtime.redis.services import Services
    from stagebell.runtime.redis.turns import DurableTurn

# So many rounds of the event loop does it take until code that was given a reply waits again: one for each future
# between the reply and the code (`gather` in `gather`, `wait_for`, task groups), and some to spare.
_ROUNDS = 16
_WITHIN = 5.0  # seconds without news after which a turn that runs again may be another than it was


class Taking:
    """The replies that one turn has taken and those that wait; `let_in(k)` lets in what descends from call k."""

    def __init__(
        self, services: Services, turn: DurableTurn, open: dict[str, OpenCall], let_in: Callable[[str], None]
    ) -> None:
        self.replaying = False
        self.waits_for = ""  # of a replay: the call it needs next
        self.made: set[str] = set()
        self._anew: set[str] = set()  # of a replay: calls whose recorded failure was forgotten before a retry
        self._gone: set[str] = set()  # of a replay: calls that the turn has given up
        self._replay: Replay | None = None
        self._taken: list[str] = []
        self._services = services
        self._turn = turn
        self._open = open
        self._let_in = let_in
        self._inner = ""  # of a replay: the nested turn whose end is awaited
        self._arrived: dict[str, Envelope] = {}
        self._knows = False
        self._given = 0  # what the turn's code was given: replies
        self._rested = 0  # as much of it as it has dealt with
        self._news: Event | None = None
        self._moved = Event()  # of a replay: it went on, or cannot go on
        self._stuck = False  # of a replay: it waits for something
        self._player: Task[None] | None = None

    @property
    def place(self) -> str:
        """Where the turn stands, for the savepoint of a nested turn."""
        return place(self._taken, self._awaited, self._turn.below)

    @property
    def _awaited(self) -> frozenset[str]:
        return frozenset(k for k, call in self._open.items() if not call.answer.done())

    def below(self, k: str) -> tuple[Below, ...]:
        """What a nested turn that is let in by call k has below it."""
        return Below(self._turn.turn_id, k, tuple(self._taken), self._awaited), *self._turn.below

    def has(self, k: str) -> bool:
        """True when the reply to call k is there, taken or not."""
        return k in self._arrived or (k in self._open and self._open[k].answer.done())

    def arrived(self, k: str, reply: Envelope) -> None:
        """The reply to an open call is there."""
        self._arrived[k] = reply
        if self._news is not None:
            self._news.set()
        self.go_on()

    def was_made(self, k: str, *, anew: bool = False) -> None:
        """The server knows call k (`anew`: only now), and has told whether there is something to see again."""
        self._knows = True
        if self._news is not None:
            self.made.add(k)
            if anew:
                self._anew.add(k)
            self._news.set()
        if self._arrived:  # a bell can be faster than an answer
            self.go_on()

    def go_on(self) -> None:
        """Let the turn take what is there, unless it has to wait."""
        if self._knows and not self.replaying and not self._is_held:
            for k in list(self._arrived):
                self._take(k)

    def _take(self, k: str) -> None:
        reply, call = self._arrived.pop(k), self._open.get(k)
        if call is not None and not call.answer.done():
            self._taken.append(k)
            self._given += 1
            call.answer.set_result(reply)

    @property
    def _is_held(self) -> bool:
        """True while a nested turn of an agent with state is open above this one."""
        turn = self._turn.turn
        if turn is None or turn.closed or turn.activation.top is turn:
            return False
        stored = turn.activation.stored
        return isinstance(stored, Stored) and stored.keeps and not turn.activation.hosted.interleaved

    def nested_ended(self, turn_id: str) -> None:
        """A nested turn is ending; soon, when it has, the turn may go on."""
        asyncio.get_running_loop().call_soon(self._after_nested, turn_id)

    def _after_nested(self, turn_id: str) -> None:
        if turn_id == self._inner:
            self._inner = ""
        self.look()
        self.go_on()

    def look(self) -> None:
        """Something may have changed that a replay waits for."""
        if self._news is not None:
            self._news.set()

    async def has_seen_all(self) -> bool:
        """The turn's code has ended: whether it has seen again all that it had seen before."""
        if self._stuck and self._news is not None and self._player is not None and not self._player.done():
            self._stuck = False
            self.look()
        while self.replaying and not self._stuck:
            self._moved.clear()
            await self._moved.wait()
        return not self.replaying

    async def rest(self) -> None:
        """Wait until the turn's code has dealt with the replies that it was given."""
        while self._rested != self._given:
            given = self._given
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)
            self._rested = given

    async def given_up(self, k: str) -> None:
        """The turn gives up call k: what it does then must come after all that belongs before it.

        A nested turn that is open ends first, since it was begun on what the turn had done by then, and puts that back
        when it fails. So does what a turn that runs again has to see while it awaits the call.
        """
        self.made.add(k)
        self.look()
        with suppress(TimeoutError):
            async with asyncio.timeout(_WITHIN):
                while self._news is not None and (self._replay is None or self._replay.holds(k)):
                    self._moved.clear()
                    await self._moved.wait()
        self._gone.add(k)
        self.look()
        turn = self._turn.turn
        while self._is_held and turn is not None and (above := turn.activation.top) is not None:
            await self._services.dispatcher.until_ended(above)

    # -- a turn that runs again

    def replay(self) -> None:
        """Nested turns ended while this turn ran before: see what it saw."""
        self.replaying = True
        self._news = Event()
        self._given += 1  # it has just made its first call, others may follow at once
        self._player = self._services.dispatcher.spawn(self._play())

    def stop(self) -> None:
        """The turn is over."""
        if self._player is not None:
            self._player.cancel()

    async def _play(self) -> None:
        try:
            keys, turn_id = self._turn.fence.keys, self._turn.turn_id
            begun = await self._services.link.submit(lambda scripts: scripts.attempts(keys))
            others = {other: await self._savepoints(other) for other in begun if other != turn_id}
            inner = find_inner(turn_id, others)
            self._replay = replay = Replay(await self._savepoints(turn_id), inner, self._anew, self._gone)
            while await self._step(replay):
                pass
        except Exception as error:
            self._break(error)
            return
        self._news, self.replaying = None, False
        self._moved.set()
        for k in self.made & self._open.keys():
            self._let_in(k)
        self.go_on()

    async def _savepoints(self, turn_id: str) -> list[Savepoint]:
        key = self._turn.fence.keys.savepoints(turn_id)
        fields = await self._services.link.submit(lambda scripts: scripts.savepoints(key))
        return read_savepoints(fields)

    async def _step(self, replay: Replay) -> bool:
        """One thing more; False when it was the last."""
        self._stuck = False
        self._moved.set()
        news = self._news
        assert news is not None
        news.clear()
        await self.rest()
        match replay.next(self._taken, self.made, self._arrived):
            case Load(state):
                await self.load(state)
                self._turn.calls.keep(state)
            case Take(k):
                self._take(k)
            case LetIn(inner):
                self._inner = inner.turn_id
                self._let_in(inner.parent.k)
                await self._end_of_inner(news)
            case Await(k):
                self.waits_for = k
                self._is_stuck()
                await self._wait_for(news)
                self._given += 1
            case Over():
                return False
        return True

    async def _wait_for(self, news: Event) -> None:
        try:
            async with asyncio.timeout(_WITHIN):
                await news.wait()
        except TimeoutError:  # perhaps it waits for a call that it did not make the first time, and that comes back
            for k in self.made & self._open.keys():
                self._let_in(k)

    async def _end_of_inner(self, news: Event) -> None:
        while self._inner and self._turn.has_neighbour(self._inner):
            news.clear()
            self._is_stuck()
            await news.wait()
        self._inner = ""

    def _is_stuck(self) -> None:
        self._stuck = True
        self._moved.set()

    def _break(self, error: Exception) -> None:
        """The turn cannot go on: whoever awaits a call of it hears why."""
        self._is_stuck()
        for call in self._open.values():
            if not call.answer.done():
                call.answer.set_exception(error)

    async def load(self, data: bytes) -> None:
        """Go on with the state that a nested turn left."""
        own, turn = self._turn, self._turn.turn
        agent = turn.activation.agent if turn is not None else None
        stored = turn.activation.stored if turn is not None else None
        if agent is None or not isinstance(stored, Stored) or not stored.keeps or stored.form is None:
            return
        try:
            state = stored.form.read(own.agent, decode_state(own.agent, data))
        except StateMismatch as error:
            if own.answers:
                raise
            own.pause(error)
            for call in self._open.values():
                call.answer.cancel()
            raise CancelledError(str(error)) from error
        await bring_back(agent, state)
