"""The scripts about timers, typed; see `scripts`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.requests import Delivery
from stagebell.runtime.redis.results import read_flag
from stagebell.runtime.redis.script_calls import SHA, ScriptCalls, version_arg


class TimerReply(NamedTuple):
    """Outcome of `schedule` and `promote`; `detail` is when the timer is due (next; 0: never), or what was refused."""

    status: Literal["OK", "FENCED", "GONE", "STALE_REGISTRY", "BADKEY", "BADARGS"]
    detail: str = ""


class DueTimer(NamedTuple):
    """A timer that is due at `when` (ms), with what is stored of it."""

    timer: str
    when: int
    message: bytes


class Due(NamedTuple):
    """The timers of a partition that are due at `now_ms`, and when the next one is; -1 for none."""

    now_ms: int
    following: int
    timers: list[DueTimer]


class TimerScripts(ScriptCalls):
    """What is asked of the server about timers."""

    def schedule(
        self,
        keys: LeasedKeys,
        *,
        timer: str,
        nonce: str,
        when: str,
        message: bytes,
        registry_version: int | None = None,
        window_ms: int = 600_000,
        now: str = "",
    ) -> asyncio.Future[TimerReply]:
        """Set a timer in a partition; its `detail` says when it is due.

        Arguments:
            nonce: new for each request, the same when it is repeated.
            when: "+ms" from now, or "ms" since the epoch.
            message: what `timed.pack_timed` made.
            registry_version: by which the partition was found; None: do not check.
            window_ms: how long a repeated request is recognised.
        """
        return self.run(
            _read_reply,
            *("EVALSHA", SHA["schedule"], 5, keys.due, keys.timed, keys.marker(f"{timer}.{nonce}"), keys.own),
            *(self.keys.reg, version_arg(registry_version), window_ms, self.keys.bell_head, keys.tag),
            *(timer, when, message, now),
        )

    def unschedule(self, keys: LeasedKeys, *, timer: str) -> asyncio.Future[bool]:
        """Cancel a timer; False when there is none."""
        return self.run(read_flag, "EVALSHA", SHA["unschedule"], 2, keys.due, keys.timed, timer)

    def is_set(self, keys: LeasedKeys, timer: str) -> asyncio.Future[bool]:
        """Whether there is such a timer."""
        return self.run(_is_there, "ZSCORE", keys.due, timer)

    def due(self, keys: LeasedKeys, *, count: int, now: str = "") -> asyncio.Future[Due]:
        """Up to `count` timers of a partition that are due."""
        return self.run(_read_due, "EVALSHA", SHA["due"], 2, keys.due, keys.timed, count, now)

    def upcoming(self, partitions: Sequence[LeasedKeys], *, now: str = "") -> asyncio.Future[list[int]]:
        """The time now, and then when the first timer of each partition is due; -1 where there is none."""
        names = [keys.due for keys in partitions]
        return self.run(_read_numbers, "EVALSHA", SHA["upcoming"], len(names), *names, now)

    def promote(
        self, token: str, due: DueTimer, nonce: bytes, to: Delivery, *, now: str = ""
    ) -> asyncio.Future[TimerReply]:
        """Put the message of a timer that is due into the inbox of its partition; `detail` says when it is due next.

        Arguments:
            nonce: that of the message in `due`.
            to: the partition, and the message as it is to be delivered; without an agent, to the stream of events.
        """
        keys = to.keys
        return self.run(
            _read_reply,
            *("EVALSHA", SHA["promote"], 4, keys.own, keys.due, keys.timed, keys.inbox),
            *(token, self.keys.bell_head, keys.tag, due.timer, due.when, nonce),
            *(to.turn_id, to.agent, to.envelope, now),
        )


def _read_reply(raw: Sequence[bytes]) -> TimerReply:
    status: Any = raw[0].decode()
    return TimerReply(status, raw[1].decode() if len(raw) > 1 else "")


def _is_there(raw: object) -> bool:
    return raw is not None


def _read_numbers(raw: Sequence[bytes]) -> list[int]:
    return [int(float(number)) for number in raw]


def _read_due(raw: Sequence[Any]) -> Due:
    now_ms, following, *found = raw
    timers = zip(found[::3], found[1::3], found[2::3], strict=True)
    return Due(
        int(now_ms),
        int(float(following)),
        [DueTimer(timer.decode("utf-8", "replace"), int(float(when)), m) for timer, when, m in timers],
    )
