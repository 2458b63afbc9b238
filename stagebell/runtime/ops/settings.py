"""Where the server is and how a worker behaves, read from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, cast
from urllib.parse import quote

from stagebell.runtime.engine.checked import HOST_SETTINGS, check_fields, with_named_settings
from stagebell.runtime.redis.address import Address
from stagebell.runtime.redis.keys import check_name
from stagebell.runtime.redis.settings import RedisOptions, RedisSettings

_HEAD = "STAGEBELL_"


@with_named_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a process needs to know to take part in a namespace; times in seconds.

    Each one can be given as an environment variable: STAGEBELL_REDIS, STAGEBELL_NAMESPACE and so on.

    Attributes:
        redis: URL of the server; None for the embedded server of `folder`.
        namespace: agents of different namespaces know nothing of each other.
        folder: folder of the embedded server; None for `.stagebell` in the current directory.
        lease: how long a worker that is not heard of keeps its agents.
        max_stall: how long the event loop of a worker may be blocked before others take over.
        stop_grace: how long running handlers may go on when a worker is told to stop.
        cancel_grace: how long a cancelled handler may go on.
        undeliverable_after: how long nobody may host an agent's type before a call to it is given up.
        cancel_when_caller_gone: whether calls from outside of turns are cancelled when their process has died.
        max_call_depth: how long a chain of calls may grow.
        warn_after: a turn that waits longer, with no call open, is reported with its stack.
        inbox_limit: how many messages may wait in one inbox before it takes no more from outside of agents.
        when_full: whether what is sent there then waits for room ("wait") or raises `Busy` ("raise").
        max_running_turns: how many turns may be open at once in a worker.
        read_credit: how many messages of one inbox a worker holds in memory.
        server_patience: how long the server may be away, or an inbox full, before what is sent from outside of agents
            is given up.
        max_agents_in_memory: how many agents that save state a worker keeps in memory.
        passivate_after: how long such an agent may be idle before it leaves memory.
        max_message_bytes: largest message.
        max_state_bytes: largest state of one agent.
        partitions: shares of the keys of an agent type that is new in the namespace.

    Raises:
        ValueError: a value makes no sense, or there is no such setting; the text never repeats a password.
    """

    redis: str | None = field(default=None, repr=False)
    namespace: str = "default"
    folder: Path | None = None
    lease: float = 3.0
    max_stall: float = 60.0
    stop_grace: float = 5.0
    cancel_grace: float = 0.5
    undeliverable_after: float = 10.0
    cancel_when_caller_gone: bool = False
    max_call_depth: int = 32
    warn_after: float = 60.0
    inbox_limit: int = 10_000
    when_full: Literal["wait", "raise"] = "wait"
    max_running_turns: int = 1_000
    read_credit: int = 256
    server_patience: float = 30.0
    max_agents_in_memory: int = 10_000
    passivate_after: float = 300.0
    max_message_bytes: int = 1024 * 1024
    max_state_bytes: int = 1024 * 1024
    partitions: int = 16

    def __post_init__(self) -> None:
        check_name(self.namespace)
        if self.redis is not None:
            Address.parse(self.redis)
        RedisSettings(**self.options)
        check_fields(self, {name: kind for name, kind in HOST_SETTINGS.items() if hasattr(self, name)})

    @property
    def options(self) -> RedisOptions:
        """Those that `RedisRuntime` takes as its options."""
        return cast(RedisOptions, {name: getattr(self, name) for name in RedisOptions.__annotations__})

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the variables that are set and not empty; the others keep their defaults.

        Args:
            environment: the variables; by default those of this process.

        Raises:
            ValueError: a value makes no sense; the text names the variable.
        """
        found = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for each in fields(cls):
            text = found.get(_HEAD + each.name.upper())
            if text:
                values[each.name] = _read(each.name, each.type, text)
        return cls(**values)

    def to_environment(self) -> dict[str, str]:
        """The variables from which another process reads the same; no URL stands in an argument list."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {_HEAD + name.upper(): "" if value is None else str(value) for name, value in values.items()}

    def having(self, **given: Any) -> Self:
        """These settings, with those replaced that are given and not None."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    @property
    def server(self) -> str:
        """The server's place, without credentials."""
        if self.redis is not None:
            return str(Address.parse(self.redis))
        return f"the embedded server of {self.folder or '.stagebell'}"

    def conceal(self, text: str) -> str:
        """The text without the password of the URL, however it is written there."""
        password = Address.parse(self.redis).password if self.redis is not None else None
        if not password:
            return text
        return text.replace(password, "***").replace(quote(password, safe=""), "***")


def _read(name: str, kind: object, text: str) -> Any:
    readers: dict[object, tuple[Callable[[str], Any], str]] = {
        "float": (float, "a number of seconds"),
        "int": (int, "a whole number"),
        "bool": (_read_bool, "true or false"),
        "Path | None": (Path, "a folder"),
    }
    read, what = readers.get(kind, (str, "text"))
    try:
        return read(text)
    except ValueError:
        raise ValueError(f"{_HEAD}{name.upper()} must be {what}, not {text!r}") from None


def _read_bool(text: str) -> bool:
    value = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower())
    if value is None:
        raise ValueError(text)
    return value
