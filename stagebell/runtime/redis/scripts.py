"""The scripts' typed face: one method each, keywords in, a future of a value out. Nobody counts KEYS.

A method packs its arguments at once and returns the connection's own future: no task, no coroutine, so
commits that are ready in one turn of the loop leave as one write. The values are in
`requests` and `results`.

Every script may be sent again after a lost reply: the answer tells what happened before (`begin` alone
counts one attempt more). A server that forgot its scripts (SCRIPT FLUSH; a restart ends the connection)
gets the one it needs again with the command, see `Connection.on_noscript`.

A key of a wrong type, which only a foreign hand can have written, is answered with BADKEY, or by the
scripts that answer with numbers as ServerRefused; in either case nothing has been written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from stagebell.runtime.redis import results
from stagebell.runtime.redis.connection import Arg, Connection, Parse, Sink
from stagebell.runtime.redis.keys import LeasedKeys, NamespaceKeys
from stagebell.runtime.redis.lua_files import SCRIPTS, SOURCES
from stagebell.runtime.redis.requests import NO_REPLY, NOTHING_OPEN, Delivery, LeftOpen, Nested, ReplyTo, Turn
from stagebell.runtime.redis.results import (
    CallReply,
    Claim,
    EndReply,
    FanoutReply,
    Grant,
    InboxEntry,
    Registered,
    SendReply,
    Taken,
)

_SHA = {name: script.sha for name, script in SCRIPTS.items()}


class Scripts:
    """The scripts on one connection, for one namespace."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.keys = NamespaceKeys(namespace)
        self._connection = connection
        self._sink: Sink | None = None
        connection.on_noscript = with_source

    def into(self, sink: Sink, ask: Callable[[Scripts], object]) -> None:
        """Let `ask` call one script, whose answer then goes straight into `sink` instead of into a future."""
        self._sink = sink
        try:
            ask(self)
        finally:
            self._sink = None

    def _run(self, parse: Parse, *args: Arg) -> asyncio.Future[Any]:
        if self._sink is not None:
            self._connection.execute_into(self._sink, parse, *args)
            return _NOBODY
        return self._connection.execute_parsed(parse, *args)

    async def load(self) -> None:
        """Give the server all scripts; once after each opening of a connection.

        Raises:
            ServerUnavailable: the connection ended.
            ServerRefused: the server takes no scripts.
        """
        await asyncio.gather(*(self._connection.execute("SCRIPT", "LOAD", s.source) for s in SCRIPTS.values()))

    # ---- ownership; ttl, hold and timeouts in milliseconds; `now` = "" is the server's clock

    def acquire(
        self, keys: LeasedKeys, *, worker: str, nonce: str, ttl_ms: int, now: str = ""
    ) -> asyncio.Future[Grant | Taken]:
        """Take what is free or expired; a nonce is new for each request, the same when it is repeated."""
        return self._run(
            results.read_acquire,
            *("EVALSHA", _SHA["acquire"], 2, keys.own, keys.hold),
            *(worker, nonce, ttl_ms, now),
        )

    def renew(self, keys: LeasedKeys, *, token: str, ttl_ms: int, now: str = "") -> asyncio.Future[bool]:
        """Prolong a lease; False when it is another's."""
        return self._run(results.read_flag, "EVALSHA", _SHA["renew"], 1, keys.own, token, ttl_ms, now)

    def release(
        self, keys: LeasedKeys, *, token: str, hold_ms: int, agents: Sequence[str] = (), now: str = ""
    ) -> asyncio.Future[bool]:
        """Give up ownership; `agents` with a running turn stay ours for `hold_ms`. False: it was not ours."""
        return self._run(
            results.read_flag,
            *("EVALSHA", _SHA["release"], 2, keys.own, keys.hold),
            *(token, hold_ms, now),
            *agents,
        )

    def break_hold(
        self, keys: LeasedKeys, *, token: str, agent: str, now: str = ""
    ) -> asyncio.Future[Literal[1, 0, -1]]:
        """Free an agent whose hold is over: 1 free, 0 still held, -1 the token is not the owner's."""
        return self._run(_as_is, "EVALSHA", _SHA["break_hold"], 2, keys.own, keys.hold, token, agent, now)

    # ---- messages

    def send(
        self,
        deliveries: Sequence[Delivery],
        *,
        registry_version: int | None = None,
        window_ms: int = 600_000,
        cap: int = 0,
    ) -> asyncio.Future[SendReply]:
        """Accept messages from outside of all turns, all or none.

        Arguments:
            registry_version: the version by which the recipients were found; None: do not check.
            window_ms: how long the same turn id is recognised as sent before; 0: never.
            cap: no inbox may get longer than that; 0: no limit.
        """
        names: list[Arg] = [self.keys.reg]
        values: list[Arg] = [_version(registry_version), window_ms, cap, self.keys.bell_head]
        for keys, turn_id, agent, envelope in deliveries:
            names += (keys.inbox, keys.marker(turn_id), keys.own)
            values += (keys.tag, turn_id, agent, envelope)
        return self._run(results.read_send, "EVALSHA", _SHA["send"], len(names), *names, *values)

    def read(self, inbox: str, start: str, count: int) -> asyncio.Future[list[InboxEntry]]:
        """Up to `count` entries of an inbox, from `start` on ("-": from the first; "(id": after that one)."""
        return self._run(results.read_inbox, "XRANGE", inbox, start, "+", "COUNT", count)

    def state(self, key: str) -> asyncio.Future[tuple[int, bytes]]:
        """Version and data of an agent's stored state."""
        return self._run(results.read_state, "HMGET", key, "v", "d")

    def registry(self) -> asyncio.Future[list[bytes]]:
        """All fields of the registry, names and values in turn."""
        return self._run(_as_is, "HGETALL", self.keys.reg)

    def registry_version(self) -> asyncio.Future[bytes | None]:
        """The registry's version as text; None before the first change."""
        return self._run(_as_is, "HGET", self.keys.reg, "v")

    def attempts(self, keys: LeasedKeys) -> asyncio.Future[dict[str, int]]:
        """How often each unfinished turn was started, by turn id."""
        return self._run(results.read_attempts, "HGETALL", keys.run)

    def begin(self, turn: Turn) -> asyncio.Future[int]:
        """Count an attempt: its number from 1, 0 when the input is gone, -1 when fenced."""
        keys = turn.keys
        return self._run(
            _as_is,
            *("EVALSHA", _SHA["begin"], 4, keys.own, keys.hold, keys.run, keys.inbox),
            *turn.fence,
        )

    def call(
        self,
        turn: Turn,
        k: str,
        to: Delivery,
        *,
        digest: str,
        known_replies: int,
        known_savepoints: int,
        registry_version: int | None = None,
    ) -> asyncio.Future[CallReply]:
        """Send call k of a turn, or learn what became of it.

        Arguments:
            digest: 8 ASCII characters over destination, type and occurrence; a re-run must give the same.
            known_replies, known_savepoints: the counts of the last CallReply of this turn (0 at first).
        """
        keys, dest = turn.keys, to.keys
        turn_id = turn.turn_id
        return self._run(
            results.read_call,
            *("EVALSHA", _SHA["call"], 8, keys.own, keys.hold, keys.journal(turn_id), keys.run),
            *(keys.savepoints(turn_id), dest.inbox, dest.own, self.keys.reg),
            *(turn.token, turn.agent, turn_id, k, known_replies, known_savepoints, digest),
            *(_version(registry_version), self.keys.bell_head, dest.tag, to.turn_id, to.agent, to.envelope),
        )

    def commit(
        self,
        turn: Turn,
        *,
        version: int | None,
        state: bytes = b"",
        nested: Nested | None = None,
        reply_to: ReplyTo = NO_REPLY,
        reply: bytes = b"",
        outputs: Sequence[Delivery] = (),
        known_replies: int = 0,
        known_savepoints: int = 0,
        registry_version: int | None = None,
        left_open: LeftOpen = NOTHING_OPEN,
    ) -> asyncio.Future[EndReply]:
        """End a turn: state, removal of the input, reply and outputs in one step.

        Arguments:
            version: of the state the turn began with. None: the agent has no stored state (of a nested
                turn: do not check).
            state: the new state; empty when unchanged.
            reply: the envelope for `reply_to`.
            outputs: messages that leave with the commit.
        """
        keys, turn_id = turn.keys, turn.turn_id
        mode = "nested" if nested else "plain" if version is None else "root"
        names: list[Arg] = [
            *(keys.own, keys.hold, keys.inbox, turn.state_key, keys.run),
            *(keys.journal(turn_id), keys.savepoints(turn_id)),
            keys.savepoints(nested.parent_turn) if nested else keys.ids,
            *(reply_to.key or keys.journal(turn_id), reply_to.own or keys.own, self.keys.reg),
        ]
        values: list[Arg] = [
            *turn.fence,
            *(mode, _version(version), state, nested.k if nested else ""),
            *(reply_to.mode, reply_to.field, reply, reply_to.turn_id, reply_to.tag),
            *(known_replies, known_savepoints, nested.known_savepoints if nested else 0),
            *(_version(registry_version), self.keys.bell_head),
            *(left_open.stream, len(left_open.calls)),
            *left_open.calls,
            len(outputs),
        ]
        for dest, output_id, agent, envelope in outputs:
            names += (dest.inbox, dest.own)
            values += (dest.tag, output_id, agent, envelope)
        return self._run(results.read_end, "EVALSHA", _SHA["commit"], len(names), *names, *values)

    def fail(
        self,
        turn: Turn,
        *,
        has_state: bool,
        nested: Nested | None = None,
        reply_to: ReplyTo = NO_REPLY,
        failure: bytes = b"",
        dead_letter: str = "",
        known_savepoints: int = 0,
        left_open: LeftOpen = NOTHING_OPEN,
        bare: bool = False,
    ) -> asyncio.Future[EndReply]:
        """End a turn that failed: the last savepoint becomes the state, nothing else of it remains.

        Arguments:
            has_state: the agent's state is stored.
            bare: only tell the caller and remove the input, since another key has a wrong type; no dead letter.
            failure: the envelope for `reply_to`.
            dead_letter: why the message goes to the dead letters; empty: it does not.
        """
        keys, turn_id = turn.keys, turn.turn_id
        return self._run(
            results.read_end,
            *("EVALSHA", _SHA["fail"], 11, keys.own, keys.hold, keys.inbox),
            keys.savepoints(nested.parent_turn) if nested else turn.state_key,
            *(keys.run, keys.journal(turn_id), keys.savepoints(turn_id), keys.dlq),
            *(reply_to.key or keys.journal(turn_id), reply_to.own or keys.own, keys.ids),
            *turn.fence,
            "bare" if bare else "nested" if nested else "root" if has_state else "plain",
            nested.k if nested else "",
            *(reply_to.mode, reply_to.field, failure, reply_to.turn_id, reply_to.tag),
            *(known_savepoints, nested.known_savepoints if nested else 0, "" if bare else dead_letter),
            *(self.keys.bell_head, left_open.stream, len(left_open.calls)),
            *left_open.calls,
        )

    def withdraw(
        self, callee: LeasedKeys, *, entry_id: str, turn_id: str, reply_to: ReplyTo, failure: bytes = b""
    ) -> asyncio.Future[bool]:
        """Take an unanswered call back. False: it is answered already, or the request is gone.

        Arguments:
            callee: where the request lies.
            turn_id: the callee's.
            reply_to: the caller's, as in the request; a turn's journal records `failure` as the reply.
        """
        journal = reply_to.key if reply_to.mode == "journal" else callee.run
        return self._run(
            results.read_flag,
            *("EVALSHA", _SHA["withdraw"], 3, callee.inbox, callee.run, journal),
            *(reply_to.mode, entry_id, turn_id, reply_to.field, failure),
        )

    def idle(self, inboxes: Sequence[str]) -> asyncio.Future[int]:
        """How many entries these inboxes hold, at one moment."""
        return self._run(_as_is, "EVALSHA", _SHA["idle"], len(inboxes), *inboxes)

    def fanout(
        self,
        events: LeasedKeys,
        *,
        token: str,
        entry_id: str,
        deliveries: Sequence[Delivery] = (),
        dead_letter: str = "",
        registry_version: int | None = None,
    ) -> asyncio.Future[FanoutReply]:
        """Turn an outside event into messages (perhaps none), or set it aside with a reason."""
        names: list[Arg] = [events.own, events.hold, events.inbox, events.run, events.dlq, self.keys.reg]
        values: list[Arg] = [*(token, entry_id, dead_letter, _version(registry_version), self.keys.bell_head)]
        for keys, turn_id, agent, envelope in deliveries:
            names += (keys.inbox, keys.own)
            values += (keys.tag, turn_id, agent, envelope)
        return self._run(results.read_fanout, "EVALSHA", _SHA["fanout"], len(names), *names, *values)

    # ---- the process

    def beat(
        self, *, worker: str, described: Mapping[str, str], expires_ms: int, now: str = ""
    ) -> asyncio.Future[bool]:
        """Note that a worker lives; what it says of itself is kept for `expires_ms`."""
        flat = [part for pair in described.items() for part in pair]
        return self._run(
            results.read_flag,
            *("EVALSHA", _SHA["beat"], 2, self.keys.workers, self.keys.worker(worker)),
            *(worker, expires_ms, now),
            *flat,
        )

    def probe(self, commands: Sequence[str]) -> asyncio.Future[dict[str, str]]:
        """Try commands; gives those that the server refuses, with its words."""
        return self._run(_read_refused, "EVALSHA", _SHA["probe"], 1, self.keys.probe, *commands)

    # ---- the registry

    def register(self, changes: Sequence[tuple[Literal["nx", "set", "del"], str, str]]) -> asyncio.Future[Registered]:
        """Change the registry: (nx, field, value) sets if absent, (set, …) sets, (del, field, "") deletes."""
        flat = [part for change in changes for part in change]
        return self._run(results.read_register, "EVALSHA", _SHA["register"], 1, self.keys.reg, *flat)

    def claim_type(
        self, *, field: str, worker: str, value: str, timeout_ms: int, now: str = ""
    ) -> asyncio.Future[Claim]:
        """Take a process-bound type unless a worker with a beat in the last `timeout_ms` holds it.

        Arguments:
            value: JSON for the registry; its "w" must be `worker`.
        """
        return self._run(
            results.read_claim,
            *("EVALSHA", _SHA["claim_type"], 2, self.keys.reg, self.keys.workers),
            *(field, worker, value, timeout_ms, now),
        )


# What a script that answers into a sink returns to `ask`, which has no use for it.
_NOBODY = cast("asyncio.Future[Any]", None)


def with_source(args: tuple[Arg, ...]) -> tuple[Arg, ...]:
    """The EVAL for an EVALSHA whose script the server does not know."""
    return ("EVAL", SOURCES[str(args[1])], *args[2:])


def _version(version: int | None) -> Arg:
    return "" if version is None else version


def _read_refused(raw: Sequence[bytes]) -> dict[str, str]:
    texts = [text.decode("utf-8", "replace") for text in raw]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _as_is(raw: Any) -> Any:
    return raw
