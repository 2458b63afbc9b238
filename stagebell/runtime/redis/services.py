"""What the parts of one `RedisRuntime` share."""

from __future__ import annotations

import asyncio
import itertools
from asyncio import Future
from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autogen_core import AgentId, TopicId

from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.catalog import Catalog
from stagebell.runtime.engine.clock import Clock
from stagebell.runtime.engine.dispatch import Dispatcher
from stagebell.runtime.redis.awaiting import Awaiting
from stagebell.runtime.redis.commit_order import CommitOrder
from stagebell.runtime.redis.directory import Directory
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.owned import Owned
from stagebell.runtime.redis.replies import Replies
from stagebell.runtime.redis.settings import RedisSettings
from stagebell.runtime.redis.transport import Transport
from stagebell.runtime.redis.wire import Wire

if TYPE_CHECKING:
    from stagebell.runtime.redis.expiring import ExpiringMarks
    from stagebell.runtime.redis.passivation import Passivation
    from stagebell.runtime.redis.turns import DurableTurn

TellHere = Callable[[Any, AgentId, "AgentId | None", str, "type | None"], None]
PublishHere = Callable[[Any, TopicId, list[AgentId], "AgentId | None", str, "int | None"], None]


@dataclass(slots=True)
class Services:
    """One for each runtime.

    `worker` is its name in the namespace, `paused` the types and versions of stored states that it cannot read (agent
    type, type and version of the state).
    """

    worker: str
    settings: RedisSettings
    link: Link
    wire: Wire
    directory: Directory
    replies: Replies
    transport: Transport
    commit_order: CommitOrder
    catalog: Catalog
    dispatcher: Dispatcher
    publish_here: PublishHere
    max_call_depth: int
    clock: Clock
    awaiting: Awaiting = field(default_factory=Awaiting)
    passivation: Passivation = field(init=False)
    marks: ExpiringMarks = field(init=False)
    context: Context = field(default_factory=Context)
    partitions: dict[str, Owned] = field(default_factory=dict[str, Owned])
    deferring: dict[str, Future[None]] = field(default_factory=dict[str, Future[None]])  # commits that defer a reply
    calling: dict[str, DurableTurn] = field(default_factory=dict[str, "DurableTurn"])
    bound_here: frozenset[str] = frozenset()
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    paused: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    numbers: Iterator[int] = field(default_factory=itertools.count)
    stopping: bool = False
    tell_here: TellHere = lambda message, to, sender, message_id, expects: None
    on_publish_error: Callable[[BaseException], None] = lambda error: None
    on_lost: Callable[[Owned], None] = lambda partition: None
    find_circles: Callable[[Activation], None] = lambda activation: None
