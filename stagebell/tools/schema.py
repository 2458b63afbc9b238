"""The arguments of a function: a pydantic model of them, and the JSON schema that the model is shown.

The signature is the schema and the docstring is its text; there is no other source. Titles that pydantic would make up
of names are left out, since they cost tokens and say nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Annotated, Any, Final, cast, get_args, get_origin, get_type_hints

from autogen_core.tools import ParametersSchema
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from stagebell.errors import InvalidArguments
from stagebell.messages.reasons import explain
from stagebell.tools.context import ToolContext
from stagebell.tools.docstrings import Docstring

_CLOSED: Final = ConfigDict(extra="forbid", protected_namespaces=(), arbitrary_types_allowed=False)


class Signature:
    """The arguments that a function takes, the `ToolContext` in front of them left out.

    Args:
        function: every parameter has an annotation.
        docstring: what is said of the parameters.

    Attributes:
        model: a pydantic model with one field for each parameter; others are refused.
        takes_context: the first parameter is a `ToolContext`.
        returns: the annotation of what the function returns.

    Raises:
        ValueError: a parameter cannot be described.
    """

    def __init__(self, function: Callable[..., Any], docstring: Docstring) -> None:
        parameters = list(inspect.signature(function).parameters.values())
        hints = _hints(function)
        self.takes_context = bool(parameters) and _is_context(hints.get(parameters[0].name))
        if self.takes_context:
            del parameters[0]
        self.returns: Any = hints.get("return", Any)
        self._names = {parameter.name: _field_name(parameter.name, at) for at, parameter in enumerate(parameters)}
        fields: dict[str, Any] = {
            self._names[parameter.name]: _field(parameter, hints, docstring) for parameter in parameters
        }
        try:
            self.model: type[BaseModel] = create_model(f"{_name(function)}_arguments", __config__=_CLOSED, **fields)
            self.parameters = parameters_schema(self.model)
        except PydanticUserError as error:
            raise ValueError(f"its arguments cannot be described as JSON: {error.message}") from error

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
        """The arguments as JSON data, with defaults filled in.

        Raises:
            InvalidArguments: they are not what the function takes.
        """
        return self.as_data(self.read(arguments))

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function wants them, by name.

        Raises:
            InvalidArguments: they are not what the function takes.
        """
        return self.as_values(self.read(arguments))

    def named(self, positional: Sequence[Any]) -> dict[str, Any]:
        """Arguments given by position, by their names. Raises InvalidArguments when there are too many."""
        if len(positional) > len(self._names):
            raise InvalidArguments(f"there are {len(self._names)} arguments to give, got {len(positional)}")
        return dict(zip(self._names, positional, strict=False))

    def as_data(self, read: BaseModel) -> dict[str, JsonValue]:
        """Arguments that were read, as `validate` gives them."""
        return cast("dict[str, JsonValue]", read.model_dump(mode="json", by_alias=True))

    def as_values(self, read: BaseModel) -> dict[str, Any]:
        """Arguments that were read, as `values` gives them."""
        return {name: getattr(read, field) for name, field in self._names.items()}

    def read(self, arguments: Mapping[str, Any]) -> BaseModel:
        """The arguments in a model of them. Raises InvalidArguments when they are not what the function takes."""
        try:
            return self.model.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(f"invalid arguments: {explain(error)}") from error


def parameters_schema(model: type[BaseModel]) -> ParametersSchema:
    """The JSON schema of a model's fields, without made-up titles, and with what they refer to put in its place."""
    whole = model.model_json_schema(by_alias=True, schema_generator=_WithoutTitles)
    definitions = {name: _untitled(name, each) for name, each in whole.pop("$defs", {}).items()}
    schema = ParametersSchema(
        type="object",
        properties=_inline(whole.get("properties", {}), definitions, ()),
        required=whole.get("required", []),
        additionalProperties=whole.get("additionalProperties", True),
    )
    if _refers(schema["properties"]):  # a type that contains itself
        schema = cast("ParametersSchema", {**schema, "$defs": _inline(definitions, definitions, tuple(definitions))})
    return schema


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles that are only names of Python's."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _untitled(name: str, definition: dict[str, Any]) -> dict[str, Any]:
    """A definition without its title, when that is the name of its class."""
    title = definition.get("title", "")
    return {key: value for key, value in definition.items() if key != "title" or name.rpartition("__")[2] != title}


def _inline(schema: object, definitions: Mapping[str, Any], open: tuple[str, ...]) -> Any:
    """The schema with its references replaced, but for those that lead back into themselves."""
    if isinstance(schema, list):
        return [_inline(each, definitions, open) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    name = str(fields.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions and name not in open and not _reaches(definitions[name], name, definitions, set()):
        beside = {key: value for key, value in fields.items() if key != "$ref"}
        return {**_inline(definitions[name], definitions, (*open, name)), **beside}
    return {key: _inline(value, definitions, open) for key, value in fields.items()}


def _reaches(schema: Any, name: str, definitions: Mapping[str, Any], seen: set[str]) -> bool:
    """True when a definition refers to itself, over any number of others."""
    for found in _references(schema):
        if found == name:
            return True
        if found not in seen and found in definitions:
            seen.add(found)
            if _reaches(definitions[found], name, definitions, seen):
                return True
    return False


def _references(schema: object) -> list[str]:
    if isinstance(schema, list):
        return [name for each in cast("list[object]", schema) for name in _references(each)]
    if not isinstance(schema, dict):
        return []
    fields = cast("dict[str, Any]", schema)
    own = [str(fields["$ref"]).removeprefix("#/$defs/")] if isinstance(fields.get("$ref"), str) else []
    return own + [name for each in fields.values() for name in _references(each)]


def _refers(schema: Any) -> bool:
    return bool(_references(schema))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target: Any = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise ValueError(
            f"its annotation {error.name!r} is not known in module {getattr(target, '__module__', '?')}: "
            "define the type at the top of the module, and import it not only for type checkers"
        ) from error


def _is_context(annotation: Any) -> bool:
    return annotation is ToolContext or get_origin(annotation) is ToolContext


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _field_name(name: str, at: int) -> str:
    """A name that a field of a model can have; the parameter's own is then the alias."""
    return f"argument_{at}" if name.startswith("_") or hasattr(BaseModel, name) else name


def _field(parameter: Parameter, hints: Mapping[str, Any], docstring: Docstring) -> tuple[Any, Any]:
    name = parameter.name
    if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
        raise ValueError(f"its parameter {name!r} has no name of its own for a caller: *, ** and / cannot be used")
    if name not in hints:
        raise ValueError(f"its parameter {name!r} has no annotation: the schema is made of annotations")
    if _is_context(hints[name]):
        raise ValueError(f"its parameter {name!r} is a ToolContext: that must be the first one, and the only one")
    annotation, default = hints[name], parameter.default
    told = _told(annotation, default) or docstring.parameters.get(name)
    extra: dict[str, Any] = {"description": told} if told else {}
    if name.startswith("_") or hasattr(BaseModel, name):
        extra["alias"] = name
    if isinstance(default, FieldInfo):
        return Annotated[annotation, Field(**extra)], default
    return annotation, Field(PydanticUndefined if default is Parameter.empty else default, **extra)


def _told(annotation: Any, default: Any) -> str | None:
    """What `Field(description=…)`, or a text in `Annotated`, says of a parameter."""
    if isinstance(default, FieldInfo) and default.description:
        return default.description
    if get_origin(annotation) is not Annotated:
        return None
    for each in reversed(get_args(annotation)[1:]):
        if isinstance(each, FieldInfo) and each.description:
            return each.description
        if isinstance(each, str):
            return each
    return None
