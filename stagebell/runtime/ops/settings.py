"""Where the server is and how a worker behaves, read from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from stagebell.runtime.redis.address import Address
from stagebell.runtime.redis.keys import check_name
from stagebell.runtime.redis.settings import RedisSettings

_HEAD = "STAGEBELL_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a process needs to know to take part in a namespace; times in seconds.

    Each one can be given as an environment variable: STAGEBELL_REDIS, STAGEBELL_NAMESPACE and so on.

    Attributes:
        redis: URL of the server; None for the embedded server of `folder`.
        namespace: agents of different namespaces know nothing of each other.
        folder: folder of the embedded server; None for `.stagebell` in the current directory.
        lease: how long a worker that is not heard of keeps its agents.
        undeliverable_after: how long nobody may host an agent's type before a call to it is given up.
        stop_grace: how long running handlers may go on when a worker is told to stop.

    Raises:
        ValueError: a value makes no sense; the text never repeats a password.
    """

    redis: str | None = field(default=None, repr=False)
    namespace: str = "default"
    folder: Path | None = None
    lease: float = 3.0
    undeliverable_after: float = 10.0
    stop_grace: float = 5.0

    def __post_init__(self) -> None:
        check_name(self.namespace)
        if self.redis is not None:
            Address.parse(self.redis)
        RedisSettings(lease=self.lease, undeliverable_after=self.undeliverable_after, stop_grace=self.stop_grace)

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
                values[each.name] = _read(each.name, text)
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


def _read(name: str, text: str) -> Any:
    if name in ("redis", "namespace"):
        return text
    if name == "folder":
        return Path(text)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{_HEAD}{name.upper()} must be a number of seconds, not {text!r}") from None
