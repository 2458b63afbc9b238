"""Every key in the server, in one place: its name, and how long it lives.

    sb:{ns}:…              the namespace: registry, heartbeats, stream of outside events
    sb:{ns:type:p}:…       partition p of an agent type: inbox, ownership, states, unfinished turns
    sb:{ns:w:<worker>}:…   one worker process: its bell, and the inbox of its process-bound agents
    sb:{ns:c:<client>}:…   one client outside of all turns: its replies

What stands in braces is the tag: the keys of one tag lie in one slot of a cluster. A tag is also how a
partition is named inside bells and envelopes; `leased_keys` leads from it back to the keys.
Namespaces, workers and clients match [A-Za-z0-9_.-]{1,64}, agent types [\\w.-]+, so a tag can be read in one
way only; agent keys may be any text and come last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TYPE = re.compile(r"[\w.-]+")


def check_name(name: str, what: str = "namespace") -> str:
    """The name itself, if it can be part of a key.

    Raises:
        ValueError: it holds other characters than letters, digits, `_`, `.`, `-`, or is empty or too long.
    """
    if not isinstance(cast(object, name), str) or not _NAME.fullmatch(name):
        raise ValueError(f"the {what} {name!r} must be 1 to 64 letters, digits, dots, dashes or underscores")
    return name


def _check_process(name: str, what: str) -> str:
    # Digits alone could be taken for a partition of an agent type that is called "w" or "c".
    if name.isdecimal():
        raise ValueError(f"the {what} {name!r} must not be a number")
    return check_name(name, what)


@dataclass(frozen=True, slots=True)
class LeasedKeys:
    """The keys of what one worker at a time owns: an inbox and all that its turns write.

    `tag` tells them apart. `own` ownership, `hold` agents whose turn still runs at a former owner,
    `inbox` unconsumed messages, `ctl` which of them are to be ended, `run` attempts of started turns,
    `ids` agents with state, `dlq` dead letters, `later` calls whose reply comes later,
    `due` when its timers are due, `timed` what they bring.
    """

    tag: str
    own: str = field(init=False, compare=False, repr=False)
    hold: str = field(init=False, compare=False, repr=False)
    inbox: str = field(init=False, compare=False, repr=False)
    ctl: str = field(init=False, compare=False, repr=False)
    run: str = field(init=False, compare=False, repr=False)
    ids: str = field(init=False, compare=False, repr=False)
    dlq: str = field(init=False, compare=False, repr=False)
    later: str = field(init=False, compare=False, repr=False)
    due: str = field(init=False, compare=False, repr=False)
    timed: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _name_keys(self, f"sb:{{{self.tag}}}:", inbox="in")

    def state(self, agent_key: str) -> str:
        """State and version of the agent with this key."""
        return f"sb:{{{self.tag}}}:s:{agent_key}"

    def journal(self, turn: str) -> str:
        """Calls and replies of an unfinished turn."""
        return f"sb:{{{self.tag}}}:j:{turn}"

    def savepoints(self, turn: str) -> str:
        """States after the nested turns of an unfinished turn."""
        return f"sb:{{{self.tag}}}:sp:{turn}"

    def marker(self, turn: str) -> str:
        """Says that a message sent from outside has arrived."""
        return f"sb:{{{self.tag}}}:d:{turn}"


def _name_keys(keys: LeasedKeys, head: str, *, inbox: str) -> None:
    for name in ("own", "hold", "ctl", "run", "ids", "dlq", "later", "due"):
        object.__setattr__(keys, name, head + name)
    object.__setattr__(keys, "timed", head + "dm")
    object.__setattr__(keys, "inbox", head + inbox)


class PartitionKeys(LeasedKeys):
    """The keys of one partition of an agent type."""

    __slots__ = ()

    def __init__(self, namespace: str, type: str, partition: int) -> None:
        check_name(namespace)
        if not _TYPE.fullmatch(type):
            raise ValueError(f"the agent type {type!r} must be letters, digits, dots, dashes or underscores")
        super().__init__(f"{namespace}:{type}:{partition}")


class ProcessKeys(LeasedKeys):
    """The keys of one worker process; its process-bound agents share one inbox."""

    __slots__ = ()

    def __init__(self, namespace: str, worker: str) -> None:
        super().__init__(f"{check_name(namespace)}:w:{_check_process(worker, 'worker')}")

    @property
    def bell(self) -> str:
        """The stream that says which inboxes and journals of this worker have grown."""
        return f"sb:{{{self.tag}}}:bell"


class EventsKeys(LeasedKeys):
    """The keys of the stream to which outside systems publish; owned like a partition, `inbox` is it."""

    __slots__ = ()

    def __init__(self, namespace: str) -> None:
        super().__init__(check_name(namespace))

    def __post_init__(self) -> None:
        head = f"sb:{{{self.tag}}}:events"
        _name_keys(self, head + ":", inbox="")
        object.__setattr__(self, "inbox", head)


@lru_cache(maxsize=8192)
def leased_keys(tag: str) -> LeasedKeys:
    """The keys of a partition or process named by its tag, as bells and envelopes carry it.

    Raises:
        ValueError: no such tag.
    """
    namespace, _, rest = tag.partition(":")
    kind, _, last = rest.rpartition(":")
    if last.isdecimal():
        return PartitionKeys(namespace, kind, int(last))
    if kind == "w":
        return ProcessKeys(namespace, last)
    raise ValueError(f"{tag!r} names neither a partition nor a worker")


def alive_key(replies: str) -> str:
    """The key that says whether the client with this stream of replies is alive."""
    return replies.removesuffix("rep") + "alive"


@dataclass(frozen=True, slots=True)
class NamespaceKeys:
    """The keys that a whole namespace shares, and those of its workers and clients.

    `reg` registry, `workers` heartbeats, `ended` processes that have left dead letters, `probe` where commands are
    tried, `bell_head` what precedes a worker's name in the key of its bell.
    """

    namespace: str
    reg: str = field(init=False, compare=False, repr=False)
    workers: str = field(init=False, compare=False, repr=False)
    ended: str = field(init=False, compare=False, repr=False)
    probe: str = field(init=False, compare=False, repr=False)
    bell_head: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        head = f"sb:{{{check_name(self.namespace)}}}:"
        object.__setattr__(self, "reg", head + "reg")
        object.__setattr__(self, "workers", head + "workers")
        object.__setattr__(self, "ended", head + "ended")
        object.__setattr__(self, "probe", head + "probe")
        object.__setattr__(self, "bell_head", f"sb:{{{self.namespace}:w:")

    def worker(self, worker: str) -> str:
        """What one worker says of itself."""
        return f"sb:{{{self.namespace}}}:worker:{_check_process(worker, 'worker')}"

    def client_replies(self, client: str) -> str:
        """The stream of replies to one client outside of all turns."""
        return f"sb:{{{self.namespace}:c:{_check_process(client, 'client')}}}:rep"

    def client_alive(self, client: str) -> str:
        """Is there while the client is."""
        return alive_key(self.client_replies(client))


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long the keys of one pattern live; `expires` when the server itself must end them."""

    pattern: re.Pattern[str]
    kind: str
    lives: str
    expires: bool = False


def _lives(tag: str, rest: str, kind: str, lives: str, expires: bool = False) -> Lifetime:
    return Lifetime(re.compile(rf"sb:\{{{tag}\}}:{rest}", re.DOTALL), kind, lives, expires)


_NS = r"[A-Za-z0-9_.-]{1,64}"
_LEASED = rf"{_NS}:(?:[\w.-]+:\d+|w:{_NS})"

LIFETIMES: tuple[Lifetime, ...] = (
    _lives(_LEASED, "own", "hash", "for ever: one small hash for each partition that ever had an owner"),
    _lives(_LEASED, "hold", "hash", "a field until the agent's turn ends at its former owner or is given up"),
    _lives(_LEASED, "in", "stream", "an entry until the commit that consumes it; the empty stream stays"),
    _lives(_LEASED, "ctl", "stream", "an entry until its message is consumed; the empty stream stays"),
    _lives(_LEASED, "run", "hash", "a field from the start of a turn to its commit"),
    _lives(_LEASED, "ids", "set", "as long as the states"),
    _lives(_LEASED, "s:.*", "hash", "until the agent's state is deleted"),
    _lives(_LEASED, "j:.*", "hash", "until the turn's commit; a day more when calls of it were left open"),
    _lives(_LEASED, "sp:.*", "hash", "until the turn's commit"),
    _lives(_LEASED, "d:.*", "string", "the window in which a repeated send is recognised", expires=True),
    _lives(_LEASED, "dlq", "stream", "until an operator requeues or discards the entry"),
    _lives(_LEASED, "later", "hash", "a field until the call is answered"),
    _lives(_LEASED, "due", "zset", "a member until the timer has come for the last time, or is cancelled"),
    _lives(_LEASED, "dm", "hash", "a field as long as its timer"),
    _lives(rf"{_NS}:w:{_NS}", "bell", "stream", "half an hour to an hour after the last ring", expires=True),
    _lives(rf"{_NS}:c:{_NS}", "rep", "stream", "half an hour to an hour after the last reply", expires=True),
    _lives(rf"{_NS}:c:{_NS}", "alive", "string", "some seconds after the client's last sign of life", expires=True),
    _lives(_NS, "reg", "hash", "for ever: types, subscriptions and wire names of the namespace"),
    _lives(_NS, "workers", "zset", "a member until its worker has been silent for long"),
    _lives(_NS, "ended", "hash", "a field until the dead letters of its process are requeued or discarded"),
    _lives(
        _NS,
        "d:.*",
        "string",
        "the window in which a repeated requeue of an event, or setting of a timer, is recognised",
        expires=True,
    ),
    _lives(_NS, "probe", "string", "never longer than the script that tries commands on it"),
    _lives(_NS, f"worker:{_NS}", "hash", "some seconds after the worker's last beat", expires=True),
    _lives(_NS, "events", "stream", "an entry until its fan-out; the empty stream stays"),
    _lives(_NS, "events:own", "hash", "for ever: one small hash"),
    _lives(_NS, "events:hold", "hash", "never written; named because ownership scripts read it"),
    _lives(_NS, "events:run", "hash", "a field from the start of a fan-out to its commit"),
    _lives(_NS, "events:due", "zset", "a member until the timer has come for the last time, or is cancelled"),
    _lives(_NS, "events:dm", "hash", "a field as long as its timer"),
    _lives(_NS, "events:dlq", "stream", "until an operator requeues or discards the entry"),
)


def lifetime(key: str) -> Lifetime | None:
    """What is said of this key's life, None for a key that has no place here."""
    return next((rule for rule in LIFETIMES if rule.pattern.fullmatch(key)), None)
