"""Models of values that were made here, from what was validated when it came in: they are not validated again.

What comes from outside (an answer of a model, a message, a stored state) goes through the class itself. What is put
together from that, step by step, is right by its types, which a type checker sees here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

P = ParamSpec("P")
M = TypeVar("M", bound=BaseModel)

_new: Final[Any] = object.__new__
_set: Final = object.__setattr__
_set_names, _set_extra, _set_private = (
    vars(BaseModel)[f"__pydantic_{name}__"].__set__ for name in ("fields_set", "extra", "private")
)
_templates: Final[dict[Any, tuple[dict[str, Any], set[str]]]] = {}


def trusted(model: Callable[P, M], /, *_: P.args, **values: P.kwargs) -> M:
    """An instance of a pydantic model with these values, and its defaults; nothing is checked.

    Args:
        model: the class; its defaults are values, not factories, and it keeps nothing private.
        values: its fields by name, each of the type that the class declares.
    """
    defaults, names = _templates.get(model) or _template(model)
    made: M = _new(model)
    _set(made, "__dict__", defaults | values)
    _set_names(made, names)
    _set_extra(made, None)
    _set_private(made, None)
    return made


def _template(model: Any) -> tuple[dict[str, Any], set[str]]:
    """All fields in order, with their defaults; and their names."""
    fields: dict[str, FieldInfo] = model.model_fields
    if model.__private_attributes__ or any(each.default_factory is not None for each in fields.values()):
        raise TypeError(f"{model.__name__} has fields that only its own constructor can fill")
    defaults = {name: None if each.default is PydanticUndefined else each.default for name, each in fields.items()}
    _templates[model] = defaults, set(fields)
    return _templates[model]
