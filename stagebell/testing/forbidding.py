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
    for cls in _subclasses(ChatCompletionClient):
        _forbid(cls, allowed, undo)
    _forbid_new(allowed, undo)
    try:
        yield
    finally:
        for step in reversed(undo):
            step()


def _forbid_new(allowed: tuple[type[Any], ...], undo: list[Undo]) -> None:
    base: Any = ChatCompletionClient
    own: object = vars(ChatCompletionClient).get(_HOOK)

    def on_subclass(cls: type[Any], /, **options: Any) -> None:
        super(base, cls).__init_subclass__(**options)
        _forbid(cls, allowed, undo)

    undo.append(partial(delattr, base, _HOOK) if own is None else partial(setattr, base, _HOOK, own))
    setattr(base, _HOOK, classmethod(on_subclass))


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


def _subclasses(cls: type[Any]) -> list[type[ChatCompletionClient]]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]
