"""The scripts that run a turn, typed: begin, call, retry, and the two ways to end; see `scripts`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stagebell.runtime.redis import results
from stagebell.runtime.redis.effects import Effect
from stagebell.runtime.redis.joint import Arg
from stagebell.runtime.redis.requests import NO_REPLY, NOTHING_OPEN, Delivery, LeftOpen, Nested, ReplyTo, Turn
from stagebell.runtime.redis.results import CallReply, EndReply, OpenRecord, RecordReply, RetryReply
from stagebell.runtime.redis.script_calls import SHA, ScriptCalls, as_is, version_arg


class TurnScripts(ScriptCalls):
    """What a turn asks of the server."""

    def begin(self, turn: Turn) -> asyncio.Future[int]:
        """Count an attempt, once for each token: its number from 1, 0 when the input is gone, -1 when fenced."""
        keys = turn.keys
        return self.run(
            as_is,
            *("EVALSHA", SHA["begin"], 4, keys.own, keys.hold, keys.run, keys.inbox),
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
        version: int | None = None,
        registry_version: int | None = None,
    ) -> asyncio.Future[CallReply]:
        """Send call k of a turn, or learn what became of it.

        Arguments:
            digest: 8 ASCII characters over destination, type and occurrence; a re-run must give the same.
            known_replies, known_savepoints: the counts of the last CallReply of this turn (0 at first).
            version: of the state the turn began with; None: the agent has no stored state.
        """
        keys, dest = turn.keys, to.keys
        turn_id = turn.turn_id
        return self.run(
            results.read_call,
            *("EVALSHA", SHA["call"], 9, keys.own, keys.hold, keys.journal(turn_id), keys.run),
            *(keys.savepoints(turn_id), dest.inbox, dest.own, self.keys.reg, turn.state_key),
            *(turn.token, turn.agent, turn_id, k, known_replies, known_savepoints, digest),
            *(version_arg(registry_version), self.keys.bell_head, dest.tag, to.turn_id, to.agent, to.envelope),
            version_arg(version),
        )

    def record(
        self,
        turn: Turn,
        name: str,
        value: str,
        *,
        nonce: str,
        known_replies: int = 0,
        known_savepoints: int = 0,
        version: int | None = None,
    ) -> asyncio.Future[RecordReply]:
        """Keep a value with a turn, if there is none under this name.

        Arguments:
            nonce: new for each question; no blanks.
            known_replies, known_savepoints, version: as for `call`.
        """
        keys, turn_id = turn.keys, turn.turn_id
        return self.run(
            results.read_record,
            *("EVALSHA", SHA["record"], 6, keys.own, keys.hold, keys.inbox),
            *(keys.journal(turn_id), keys.savepoints(turn_id), turn.state_key),
            *turn.fence,
            *(name, value, nonce, known_replies, known_savepoints, version_arg(version)),
        )

    def recorded(self, turn: Turn, name: str) -> asyncio.Future[str | None]:
        """What is kept with a turn under this name."""
        return self.run(results.read_recorded, "HGET", turn.keys.journal(turn.turn_id), f"x:{name}")

    def retry(
        self,
        turn: Turn,
        *,
        attempt: str,
        forget: Sequence[str] = (),
        known_replies: int = 0,
        known_savepoints: int = 0,
    ) -> asyncio.Future[RetryReply]:
        """Note that an attempt has failed, before the turn is tried again; tells how many have.

        Arguments:
            attempt: a name of its own for each attempt.
            forget: the calls that were answered with a failure; the next attempt makes them again.
            known_replies, known_savepoints: as for `call`.
        """
        keys, turn_id = turn.keys, turn.turn_id
        return self.run(
            results.read_retry,
            *("EVALSHA", SHA["retry"], 6, keys.own, keys.hold, keys.inbox, keys.run),
            *(keys.journal(turn_id), keys.savepoints(turn_id)),
            *turn.fence,
            *(attempt, known_replies, known_savepoints),
            *forget,
        )

    def savepoints(self, key: str) -> asyncio.Future[dict[str, bytes]]:
        """What a turn's nested turns left; see `savepoints.read_savepoints`."""
        return self.run(results.read_fields, "HGETALL", key)

    def is_answered(self, turn: Turn, k: str) -> asyncio.Future[bool]:
        """True when the journal of a turn has the reply to call k."""
        return self.run(results.read_is_answered, "HGET", turn.keys.journal(turn.turn_id), k)

    def open_calls(self, turn: Turn) -> asyncio.Future[list[OpenRecord]]:
        """The calls of a turn that wait for their replies, as its journal has them."""
        return self.run(results.read_open_calls, "HGETALL", turn.keys.journal(turn.turn_id))

    def commit(
        self,
        turn: Turn,
        *,
        version: int | None,
        state: bytes = b"",
        nested: Nested | None = None,
        reply_to: ReplyTo = NO_REPLY,
        reply: bytes = b"",
        outputs: Sequence[Delivery | Effect] = (),
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
            outputs: messages that leave with the commit, and effects that it has.
        """
        keys, turn_id = turn.keys, turn.turn_id
        mode = "nested" if nested else "plain" if version is None else "root"
        journal, savepoints = keys.journal(turn_id), keys.savepoints(turn_id)
        names: list[Arg] = [keys.own, keys.hold, keys.inbox, turn.state_key, keys.run, journal, savepoints]
        names.append(keys.savepoints(nested.parent_turn) if nested else keys.ids)
        names += (reply_to.key or journal, reply_to.own or keys.own, self.keys.reg)
        values: list[Arg] = [turn.token, turn.agent, turn.entry_id, turn_id, mode, version_arg(version), state]
        values.append(nested.place if nested else "")
        values += (reply_to.mode, reply_to.field, reply, reply_to.turn_id, reply_to.tag)
        values += (known_replies, known_savepoints, nested.known_savepoints if nested else 0)
        values += (version_arg(registry_version), self.keys.bell_head, left_open.stream, len(left_open.calls))
        values += left_open.calls
        values.append(len(outputs))
        weight = len(state) + len(reply)
        for dest, output_id, agent, envelope in outputs:
            names += (dest.inbox, dest.own)
            values += (dest.tag, output_id, agent, envelope)
            weight += len(envelope)
        return self.run_jointly("commit", results.read_end, names, values, weight)

    def fail(
        self,
        turn: Turn,
        *,
        has_state: bool,
        nested: Nested | None = None,
        reply_to: ReplyTo = NO_REPLY,
        failure: bytes = b"",
        dead_letter: str = "",
        traceback: str = "",
        uncounted: int = 0,
        known_replies: int = 0,
        known_savepoints: int = 0,
        left_open: LeftOpen = NOTHING_OPEN,
        wish: str = "",
        bare: bool = False,
    ) -> asyncio.Future[EndReply]:
        """End a turn that failed: the last savepoint becomes the state, nothing else of it remains.

        Arguments:
            has_state: the agent's state is stored.
            bare: only tell the caller and remove the input, since another key has a wrong type; no dead letter.
            failure: the envelope for `reply_to`.
            dead_letter: why the message goes to the dead letters, in one line; empty: it does not.
            traceback: of the error, for the dead letter.
            uncounted: attempts that nobody has told the server of.
            wish: the entry of `ctl` by which the turn is ended before its time.
        """
        keys, turn_id = turn.keys, turn.turn_id
        return self.run(
            results.read_end,
            *("EVALSHA", SHA["fail"], 12, keys.own, keys.hold, keys.inbox),
            keys.savepoints(nested.parent_turn) if nested else turn.state_key,
            *(keys.run, keys.journal(turn_id), keys.savepoints(turn_id), keys.dlq),
            *(reply_to.key or keys.journal(turn_id), reply_to.own or keys.own, keys.ids, keys.ctl),
            *turn.fence,
            "bare" if bare else "nested" if nested else "root" if has_state else "plain",
            nested.place if nested else "",
            *(reply_to.mode, reply_to.field, failure, reply_to.turn_id, reply_to.tag),
            *(known_replies, known_savepoints, nested.known_savepoints if nested else 0),
            *("" if bare else dead_letter, traceback, uncounted),
            *(self.keys.bell_head, left_open.stream, wish, len(left_open.calls)),
            *left_open.calls,
        )
