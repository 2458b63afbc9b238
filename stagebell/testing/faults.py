"""Runtimes that die or stand still, inside the process of the test."""

from __future__ import annotations

from stagebell.runtime.local.runtime import LocalRuntime
from stagebell.runtime.redis.runtime import RedisRuntime


async def crash(runtime: LocalRuntime | RedisRuntime) -> None:
    """End a runtime as `kill -9` would end its process.

    `RedisRuntime`: its connections are cut first, so no release, reply or commit leaves; then its turns are
    interrupted. The leases run out by themselves, and the heartbeat stays until it expires: a runtime of the same
    namespace takes over after the lease. `LocalRuntime`: all that was in its memory is gone.

    Calls that wait for this runtime end in `RuntimeNotRunning`, and so does whatever is asked of it later; it cannot be
    started again. Its agents are not closed. Unlike a killed process, Python still runs the `finally` blocks of
    interrupted handlers, and tasks that they started on their own go on: neither reaches anybody through the runtime.

    A handler may crash its own runtime; it is interrupted there.

    Raises:
        RuntimeNotRunning: a `RedisRuntime` that is not running.
    """
    await runtime.crash()


def freeze(runtime: RedisRuntime) -> None:
    """Let a runtime stand still until `thaw`, as SIGSTOP lets its process: others take over when its leases end.

    From now on nothing is read from its connections and nothing written to them, no lease is renewed and no turn
    starts; what is sent through it waits. A renewal, or the opening of a connection, that is under way at this moment
    ends first. Not frozen is your own code: a handler goes on between its own awaits, until it needs the runtime.

    Raises:
        RuntimeNotRunning: it is not running.
    """
    runtime.freeze()


def thaw(runtime: RedisRuntime) -> None:
    """Let a frozen runtime go on where it was, as a zombie if others have taken over: what it commits is refused.

    Raises:
        RuntimeNotRunning: it is not running.
    """
    runtime.thaw()
