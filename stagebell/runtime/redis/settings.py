"""The settings of a `RedisRuntime`, in one value that its parts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from stagebell.runtime.engine.checked import FLAG, GRACE, check_fields, count, one_of, seconds, with_named_settings


class RedisOptions(TypedDict, total=False):
    """The keyword arguments of `RedisRuntime` that are settings; `RedisSettings` says what they mean."""

    lease: float
    max_stall: float
    partitions: int
    max_message_bytes: int
    max_state_bytes: int
    undeliverable_after: float
    stop_grace: float
    server_patience: float
    read_credit: int
    max_agents_in_memory: int
    passivate_after: float
    max_running_turns: int
    inbox_limit: int
    when_full: Literal["wait", "raise"]
    cancel_when_caller_gone: bool


class PublisherOptions(TypedDict, total=False):
    """The keyword arguments of `Publisher` that are settings; `RedisSettings` says what they mean."""

    max_message_bytes: int
    undeliverable_after: float
    server_patience: float
    inbox_limit: int
    when_full: Literal["wait", "raise"]


_KINDS = {
    "lease": seconds(least=0.01),
    "max_stall": seconds(endless=True),
    "partitions": count("partitions"),
    "max_message_bytes": count("bytes"),
    "max_state_bytes": count("bytes"),
    "undeliverable_after": seconds(),
    "stop_grace": GRACE,
    "server_patience": seconds(),
    "read_credit": count("messages"),
    "max_agents_in_memory": count("agents"),
    "passivate_after": seconds(endless=True),
    "max_running_turns": count("turns"),
    "inbox_limit": count("messages"),
    "when_full": one_of("wait", "raise"),
    "cancel_when_caller_gone": FLAG,
}


@with_named_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """Times in seconds, sizes in bytes.

    Attributes:
        lease: how long a worker that is not heard of keeps its partitions; it renews three times in that time.
        max_stall: how long the event loop may make no progress before the worker stops renewing its leases.
        partitions: into how many parts the keys of an agent type are divided, when this runtime is the first to use it.
        max_message_bytes: largest message, encoded.
        max_state_bytes: largest state of one agent, encoded.
        undeliverable_after: how long nobody may host an agent's type before calls to it are given up.
        stop_grace: how long open turns may go on after `stop`.
        server_patience: how long the server may be away, or an inbox be full, before what is sent from outside of
            agents is given up.
        read_credit: how many messages of one partition are held in memory.
        max_agents_in_memory: how many agents that save state may be in memory; those not used for the longest time are
            dropped first, and loaded again when a message comes for them.
        passivate_after: how long an agent that saves state may be idle before it is dropped.
        max_running_turns: how many turns may be open at once in this worker; calls from turns are let in beyond that.
        inbox_limit: how many messages may wait in one inbox (of a partition) before it takes no more from outside; what
            agents send is always taken.
        when_full: whether a send from outside waits for room, `server_patience` at most, or raises `Busy` at once.
        cancel_when_caller_gone: whether calls from outside of turns are cancelled when the process that made them has
            given no sign of life for ten seconds.

    Raises:
        InvalidSetting: there is no such setting, or it does not take this value.
    """

    lease: float = 3.0
    max_stall: float = 60.0
    partitions: int = 16
    max_message_bytes: int = 1024 * 1024
    max_state_bytes: int = 1024 * 1024
    undeliverable_after: float = 10.0
    stop_grace: float = 5.0
    server_patience: float = 30.0
    read_credit: int = 256
    max_agents_in_memory: int = 10_000
    passivate_after: float = 300.0
    max_running_turns: int = 1_000
    inbox_limit: int = 10_000
    when_full: Literal["wait", "raise"] = "wait"
    cancel_when_caller_gone: bool = False

    def __post_init__(self) -> None:
        check_fields(self, _KINDS)

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds, as the scripts take it."""
        return int(self.lease * 1000)
