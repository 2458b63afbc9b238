"""The scripts' typed face: one method each, keywords in, a future of a value out. Nobody counts KEYS.

A method packs its arguments at once and returns the connection's own future: no task, no coroutine, so
commits that are ready in one turn of the loop leave as one write. The values are in
`requests` and `results`.

Every script may be sent again after a lost reply: the answer tells what happened before. A server that forgot its
scripts (SCRIPT FLUSH; a restart ends the connection) gets the one it needs again with the command, see
`Connection.on_noscript`.

A key of a wrong type, which only a foreign hand can have written, is answered with BADKEY, or by the
scripts that answer with numbers as ServerRefused; in either case nothing has been written.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

from stagebell.runtime.redis import results
from stagebell.runtime.redis.joint import Arg
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.requests import Delivery, ReplyTo, Turn
from stagebell.runtime.redis.results import (
    Claim,
    EndWanted,
    FanoutReply,
    Grant,
    InboxEntry,
    Registered,
    RequeueReply,
    SendReply,
    Taken,
)
from stagebell.runtime.redis.script_calls import SHA, as_is, version_arg
from stagebell.runtime.redis.timer_scripts import TimerScripts
from stagebell.runtime.redis.turn_scripts import TurnScripts


def event_digest(fields: Sequence[bytes]) -> str:
    """Tells an event, by its names and values in turn, from any other."""
    return hashlib.sha1(b"\0".join(fields), usedforsecurity=False).hexdigest()


class Scripts(TurnScripts, TimerScripts):
    """The scripts on one connection, for one namespace."""

    # ---- ownership; ttl, hold and timeouts in milliseconds; `now` = "" is the server's clock

    def acquire(
        self, keys: LeasedKeys, *, worker: str, nonce: str, ttl_ms: int, now: str = ""
    ) -> asyncio.Future[Grant | Taken]:
        """Take what is free or expired; a nonce is new for each request, the same when it is repeated."""
        return self.run(
            results.read_acquire,
            *("EVALSHA", SHA["acquire"], 2, keys.own, keys.hold),
            *(worker, nonce, ttl_ms, now),
        )

    def renew(self, keys: LeasedKeys, *, token: str, ttl_ms: int, now: str = "") -> asyncio.Future[bool]:
        """Prolong a lease; False when it is another's."""
        return self.run(results.read_flag, "EVALSHA", SHA["renew"], 1, keys.own, token, ttl_ms, now)

    def release(
        self, keys: LeasedKeys, *, token: str, hold_ms: int = 0, turns: Sequence[tuple[str, str]] = (), now: str = ""
    ) -> asyncio.Future[bool]:
        """Give up ownership; `turns` (agent, turn id) that are open stay ours for `hold_ms`. False: it was not ours."""
        return self.run(
            results.read_flag,
            *("EVALSHA", SHA["release"], 2, keys.own, keys.hold),
            *(token, hold_ms, now),
            *(part for turn in turns for part in turn),
        )

    def gone(self, keys: LeasedKeys, *, worker: str, heirs: Sequence[str]) -> asyncio.Future[bool]:
        """End the lease of a worker that has died, and tell those who may take it. False: it does not own it."""
        return self.run(
            results.read_flag,
            *("EVALSHA", SHA["gone"], 1, keys.own),
            *(worker, self.keys.bell_head, keys.tag),
            *heirs,
        )

    def break_hold(
        self, keys: LeasedKeys, *, token: str, agent: str, gone: bool = False, now: str = ""
    ) -> asyncio.Future[Literal[1, 0, -1]]:
        """Free an agent whose hold is over or whose holder is `gone`: 1 free, 0 still held, -1 not the owner."""
        return self.run(
            as_is,
            *("EVALSHA", SHA["break_hold"], 2, keys.own, keys.hold),
            *(token, agent, "1" if gone else "", now),
        )

    def drop_hold(self, turn: Turn) -> asyncio.Future[bool]:
        """Give up the hold of a turn that ended without a commit. False: the agent is not held by its token."""
        return self.run(
            results.read_flag,
            *("EVALSHA", SHA["drop_hold"], 2, turn.keys.own, turn.keys.hold),
            *(turn.token, turn.agent, turn.turn_id, self.keys.bell_head),
        )

    # ---- messages

    def send(
        self,
        deliveries: Sequence[Delivery],
        *,
        registry_version: int | None = None,
        window_ms: int = 600_000,
        cap: int = 0,
        after: Sequence[str] = (),
    ) -> asyncio.Future[SendReply]:
        """Accept messages from outside of all turns, all or none.

        Arguments:
            registry_version: the version by which the recipients were found; None: do not check.
            window_ms: how long the same turn id is recognised as sent before; 0: never.
            cap: no inbox may get longer than that; 0: no limit.
            after: for each message the marker of one that must be accepted before it, or its own; empty: for none.
        """
        names: list[Arg] = [self.keys.reg]
        values: list[Arg] = [version_arg(registry_version), window_ms, cap, self.keys.bell_head]
        weight = 0
        for keys, turn_id, agent, envelope in deliveries:
            names += (keys.inbox, keys.marker(turn_id), keys.own)
            values += (keys.tag, turn_id, agent, envelope)
            weight += len(envelope)
        names += after
        return self.run_jointly("send", results.read_send, names, values, weight)

    def read(self, inbox: str, start: str, count: int) -> asyncio.Future[list[InboxEntry]]:
        """Up to `count` entries of an inbox, from `start` on ("-": from the first; "(id": after that one)."""
        return self.run(results.read_inbox, "XRANGE", inbox, start, "+", "COUNT", count)

    def absent(self, inbox: str, entries: Sequence[tuple[str, str]]) -> asyncio.Future[list[bytes]]:
        """The ids of those entries (id, turn id; "": any) that the inbox does not hold."""
        values = [part for entry in entries for part in entry]
        return self.run(as_is, "EVALSHA", SHA["absent"], 1, inbox, *values)

    def state(self, key: str) -> asyncio.Future[tuple[int, bytes]]:
        """Version and data of an agent's stored state."""
        return self.run(results.read_state, "HMGET", key, "v", "d")

    def mark(self, keys: LeasedKeys, turn_id: str) -> asyncio.Future[bytes | None]:
        """What is kept of a call whose reply comes later; None when it is answered, or was never put off."""
        return self.run(as_is, "HGET", keys.later, turn_id)

    def marks(self, keys: LeasedKeys) -> asyncio.Future[dict[str, bytes]]:
        """All marks of a partition, by turn id."""
        return self.run(results.read_fields, "HGETALL", keys.later)

    def drop_mark(self, keys: LeasedKeys, turn_id: str) -> asyncio.Future[int]:
        """Nobody waits for this reply any more."""
        return self.run(as_is, "HDEL", keys.later, turn_id)

    def registry(self) -> asyncio.Future[list[bytes]]:
        """All fields of the registry, names and values in turn."""
        return self.run(as_is, "HGETALL", self.keys.reg)

    def registry_version(self) -> asyncio.Future[bytes | None]:
        """The registry's version as text; None before the first change."""
        return self.run(as_is, "HGET", self.keys.reg, "v")

    def attempts(self, keys: LeasedKeys) -> asyncio.Future[dict[str, int]]:
        """How many workers have started each unfinished turn, by turn id."""
        return self.run(results.read_attempts, "HGETALL", keys.run)

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
        return self.run(
            results.read_flag,
            *("EVALSHA", SHA["withdraw"], 5, callee.inbox, callee.run, journal),
            *(callee.journal(turn_id), callee.savepoints(turn_id)),
            *(reply_to.mode, entry_id, turn_id, reply_to.field, failure),
        )

    def end_call(
        self,
        callee: LeasedKeys,
        *,
        turn_id: str,
        why: Literal["cancel", "deadline"],
        entry_id: str = "",
        caller: Turn | None = None,
        k: str = "",
        failure: bytes = b"",
        wish: str = "",
    ) -> asyncio.Future[Literal[1, 0, -1]]:
        """Give a message up: 1 it was open, 0 it was answered or consumed before, -1 the caller may not do it.

        Arguments:
            callee: where the request lies; its owner is told to end it.
            turn_id: the callee's.
            entry_id: of the request; may be left out of a turn's call, and of what was sent with a marker.
            caller: the turn whose call `k` it is; its journal records `failure` as the reply.
            wish: the entry of its `ctl` by which the caller's turn is ended itself.
        """
        keys = callee if caller is None else caller.keys
        journal, turn = (callee.run, "") if caller is None else (keys.journal(caller.turn_id), caller.turn_id)
        fence = ("stream", "", "") if caller is None else ("journal", caller.token, caller.agent)
        return self.run(
            as_is,
            *("EVALSHA", SHA["end_call"], 9, keys.own, keys.hold, journal),
            *(callee.inbox, callee.own, callee.ctl, callee.marker(turn_id), keys.ctl, callee.later),
            *fence,
            *(k, failure, entry_id, turn_id, why, self.keys.bell_head, callee.tag, turn, wish),
        )

    def ends(self, keys: LeasedKeys, start: str, count: int) -> asyncio.Future[list[EndWanted]]:
        """Up to `count` of the messages of an inbox that are to be ended, as `read` gives messages."""
        return self.run(results.read_ends, "XRANGE", keys.ctl, start, "+", "COUNT", count)

    def idle(self, inboxes: Sequence[str]) -> asyncio.Future[int]:
        """How many entries these inboxes hold, at one moment."""
        return self.run(as_is, "EVALSHA", SHA["idle"], len(inboxes), *inboxes)

    def fanout(
        self,
        events: LeasedKeys,
        *,
        token: str,
        entry_id: str,
        digest: str,
        deliveries: Sequence[Delivery] = (),
        caps: Sequence[int] = (),
        after: str = "",
        dead_letter: str = "",
        registry_version: int | None = None,
    ) -> asyncio.Future[FanoutReply]:
        """Turn an outside event into messages (perhaps none), or set it aside with a reason.

        Arguments:
            digest: of the event that was read, see `event_digest`; another one with its id is left alone.
            caps: for each message how long its inbox may be before it takes no more; 0, or nothing at all: no limit.
            after: the event that must have been handed on before this one.
        """
        names: list[Arg] = [events.own, events.hold, events.inbox, events.run, events.dlq, self.keys.reg]
        version = version_arg(registry_version)
        values: list[Arg] = [*(token, entry_id, digest, dead_letter, version, self.keys.bell_head, after)]
        for (keys, turn_id, agent, envelope), cap in zip(deliveries, caps or [0] * len(deliveries), strict=True):
            names += (keys.inbox, keys.own)
            values += (keys.tag, turn_id, agent, envelope, cap)
        return self.run(results.read_fanout, "EVALSHA", SHA["fanout"], len(names), *names, *values)

    def ring(self, keys: LeasedKeys, *, kind: str, entry_id: str, turn_id: str, payload: bytes) -> asyncio.Future[bool]:
        """Ring the bell of whoever owns these keys, about one message in their inbox. False: nobody owns them."""
        return self.run(
            results.read_flag,
            *("EVALSHA", SHA["ring"], 1, keys.own),
            *(self.keys.bell_head, kind, keys.tag, entry_id, turn_id, payload),
        )

    # ---- dead letters

    def requeue(
        self, dead: LeasedKeys, letter_id: str, to: Delivery, *, window_ms: int = 600_000
    ) -> asyncio.Future[RequeueReply]:
        """Put a dead letter into an inbox, with the turn id and envelope of `to`."""
        return self.run(
            results.read_requeue,
            *("EVALSHA", SHA["requeue"], 4, dead.dlq, to.keys.inbox, to.keys.marker(to.turn_id), to.keys.own),
            *(letter_id, window_ms, self.keys.bell_head, to.keys.tag, to.turn_id, to.agent, to.envelope),
        )

    def requeue_event(
        self, events: LeasedKeys, letter_id: str, *, window_ms: int = 600_000
    ) -> asyncio.Future[RequeueReply]:
        """Put an event that was set aside back into the stream of events."""
        return self.run(
            results.read_requeue,
            *("EVALSHA", SHA["requeue_event"], 3, events.dlq, events.inbox, events.marker(letter_id)),
            *(letter_id, window_ms),
        )

    # ---- the process

    def beat(
        self, *, worker: str, described: Mapping[str, str], expires_ms: int, now: str = ""
    ) -> asyncio.Future[bool]:
        """Note that a worker lives; what it says of itself is kept for `expires_ms`."""
        flat = [part for pair in described.items() for part in pair]
        return self.run(
            results.read_flag,
            *("EVALSHA", SHA["beat"], 2, self.keys.workers, self.keys.worker(worker)),
            *(worker, expires_ms, now),
            *flat,
        )

    def probe(self, commands: Sequence[str]) -> asyncio.Future[dict[str, str]]:
        """Try commands; gives those that the server refuses, with its words."""
        return self.run(_read_refused, "EVALSHA", SHA["probe"], 1, self.keys.probe, *commands)

    # ---- the registry

    def register(self, changes: Sequence[tuple[Literal["nx", "set", "del"], str, str]]) -> asyncio.Future[Registered]:
        """Change the registry: (nx, field, value) sets if absent, (set, …) sets, (del, field, "") deletes."""
        flat = [part for change in changes for part in change]
        return self.run(results.read_register, "EVALSHA", SHA["register"], 1, self.keys.reg, *flat)

    def claim_type(
        self, *, field: str, worker: str, value: str, timeout_ms: int, now: str = ""
    ) -> asyncio.Future[Claim]:
        """Take a process-bound type unless a worker with a beat in the last `timeout_ms` holds it.

        Arguments:
            value: JSON for the registry; its "w" must be `worker`.
        """
        return self.run(
            results.read_claim,
            *("EVALSHA", SHA["claim_type"], 2, self.keys.reg, self.keys.workers),
            *(field, worker, value, timeout_ms, now),
        )


def _read_refused(raw: Sequence[bytes]) -> dict[str, str]:
    texts = [text.decode("utf-8", "replace") for text in raw]
    return dict(zip(texts[::2], texts[1::2], strict=True))
