"""How a turn ended, for those who wait: decided here, written elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError, Future
from itertools import chain
from typing import Any, cast

from autogen_core import Agent, RoutedAgent

from stagebell.errors import CantHandle
from stagebell.messages.set_aside import SetAside
from stagebell.runtime.engine.turn import Turn


class RuntimeRequest(ABC):
    """A message that the runtime itself answers in an agent's turn, such as the request for its state."""

    @abstractmethod
    async def answer(self, agent: Agent) -> Any:
        """What the agent's turn returns."""


async def handle(agent: Agent, message: Any, turn: Turn) -> Any:
    """Let an agent handle a message.

    Raises:
        CantHandle: it is a call and no handler takes it.
        Exception: whatever the handler raised.
    """
    if isinstance(message, RuntimeRequest):
        return await message.answer(agent)
    result = await agent.on_message(message, turn)
    if result is None and turn.is_rpc:
        require_handler(agent, message, turn)
    return result


def require_handler(agent: Agent, message: Any, turn: Turn) -> None:
    """Refuse a call with a type that the agent's class does not handle; AutoGen's default would answer it with None.

    A class that overrides `on_unhandled_message` decides for itself.

    Raises:
        CantHandle: the agent routes by type and no handler takes this one.
    """
    if type(message) in _handled.get(type(agent), ()) or not isinstance(agent, RoutedAgent):
        return
    cls = type(agent)
    if cls.on_unhandled_message is not RoutedAgent.on_unhandled_message:
        return
    if type(message) not in handled_types(cls):
        raise CantHandle(turn.activation.id, type(message).__name__)


_handled: dict[type, frozenset[type]] = {}


def handled_types(cls: type) -> frozenset[type]:
    """The message types an agent class has handlers for."""
    found = _handled.get(cls)
    if found is None:
        handlers = (getattr(cls, name, None) for name in dir(cls))
        routed = (handler for handler in handlers if callable(handler) and hasattr(handler, "is_message_handler"))
        targets = (cast("list[type]", getattr(handler, "target_types", [])) for handler in routed)
        found = _handled[cls] = frozenset(chain.from_iterable(targets))
    return found


def hears_of_set_aside(cls: type | None) -> bool:
    """True for an agent class that wants to be told of messages to it that were set aside."""
    return cls is not None and SetAside in handled_types(cls)


def set_result(reply: Future[Any] | None, result: Any) -> None:
    """Give the caller its answer, if it still waits."""
    if reply is not None and not reply.done():
        reply.set_result(result)


def set_error(reply: Future[Any] | None, error: BaseException) -> None:
    """Give the caller its error, if it still waits."""
    if reply is None or reply.done():
        return
    if isinstance(error, CancelledError):
        reply.cancel()
    elif isinstance(error, StopIteration | GeneratorExit):  # a future refuses the one, the other ends who awaits it
        reply.set_exception(RuntimeError(f"the handler raised {error!r}"))
    else:
        reply.set_exception(error)
