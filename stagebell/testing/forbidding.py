"""No real model is asked: a switch for whole test suites."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from autogen_core.models import ChatCompletionClient

from stagebell.errors import StagebellError
from stagebell.testing.model import ScriptedModel

Undo: TypeAlias = Callable[[], object]

_ASKING: Final = ("create", "create_stream")
_HOOK: Final = "__init_subclass__"
_OFFLINE_ELSEWHERE: Final = "autogen_ext.models.replay"


class ModelRequestForbidden(StagebellError):
    """A test was about to ask a real model."""

    def __init__(self, client: type[Any]) -> None:
        super().__init__(
            f"{client.__module__}.{client.__qualname__} was about to be asked, and forbid_model_requests() is on: give "
            "the agent a ScriptedModel, for example with override(), or allow this class"
        )
        self.client = client


@contextmanager
def forbid_model_requests(*, allow: Collection[type[ChatCompletionClient]] = ()) -> Generator[None]:
    """Inside the block, no `ChatCompletionClient` but those for tests can be asked, in the whole process.

    It raises before anything is sent: the methods of the classes themselves are replaced, also of classes that are
    defined while the block is open. Models of `stagebell.testing` and AutoGen's replay client answer as always.

    Args:
        allow: classes that may be asked all the same, with the classes derived from them.
    """
    undo: list[Undo] = []
    allowed: tuple[type[Any], ...] = (ScriptedModel, *allow)
    hook = vars(ChatCompletionClient).get("__init_subclass__")

    def on_subclass(cls: type[ChatCompletionClient], **options: Any) -> None:
        super(ChatCompletionClient, cls).__init_subclass__(**options)
        _forbid(cls, allowed, undo)

    for cls in list(_subclasses(ChatCompletionClient)):
        _forbid(cls, allowed, undo)
    ChatCompletionClient.__init_subclass__ = classmethod(on_subclass)
    try:
        yield
    finally:
        if hook is None:
            delattr(ChatCompletionClient, "__init_subclass__")
        else:
            ChatCompletionClient.__init_subclass__ = hook
        for step in reversed(undo):
            step()


def _forbid(cls: type[ChatCompletionClient], allowed: tuple[type[Any], ...], undo: list[Undo]) -> None:
    if issubclass(cls, allowed) or cls.__module__.startswith(_OFFLINE_ELSEWHERE):
        return
    for name in _ASKING:
        own = vars(cls).get(name)
        if own is None:
            continue
        setattr(cls, name, _refuse)
        undo.append(partial(setattr, cls, name, own))


def _refuse(self: ChatCompletionClient, *args: Any, **options: Any) -> Any:
    raise ModelRequestForbidden(type(self))


def _subclasses(cls: type[ChatCompletionClient]) -> list[type[ChatCompletionClient]]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]
