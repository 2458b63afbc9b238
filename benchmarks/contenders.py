"""Who takes part: ours, AutoGen's runtimes, the raw floors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LOCAL, AUTOGEN, QUEUE = "local", "autogen", "queue"
REDIS, REDIS_STATE, REDIS_EVERYSEC = "redis", "redis-state", "redis-everysec"
VALKEY, VALKEY_STATE = "valkey", "valkey-state"
GRPC, THIN, REDIS_PY = "grpc", "thin", "redis-py"

Role = Literal["ours", "note", "peer", "floor", "reference"]


@dataclass(frozen=True, slots=True)
class Contender:
    """One that is measured.

    `ours` must pass the gate; a `note` is ours in a setting outside the gate; `peer` is what ours is
    compared with; `floor` is the least that such work costs; a `reference` is printed for orientation.
    """

    name: str
    title: str
    role: Role


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(LOCAL, "LocalRuntime", "ours"),
        Contender(AUTOGEN, "AutoGen SingleThreadedAgentRuntime", "peer"),
        Contender(QUEUE, "one asyncio.Queue and loop per actor", "floor"),
        Contender(REDIS, "Redis", "ours"),
        Contender(REDIS_STATE, "Redis, 200 B of state", "ours"),
        Contender(VALKEY, "Valkey", "ours"),
        Contender(VALKEY_STATE, "Valkey, 200 B of state", "ours"),
        Contender(REDIS_EVERYSEC, "Redis, 200 B of state, AOF everysec", "note"),
        Contender(GRPC, "AutoGen gRPC runtime", "peer"),
        Contender(THIN, "floor: streams, hiredis connection", "floor"),
        Contender(REDIS_PY, "for reference: streams, redis-py", "reference"),
    )
}
