"""A typed function becomes a tool: its signature is the schema, its docstring the description.

    @tool(effects="idempotent", timeout=5)
    async def refund(context: ToolContext[Shop], order: str, cents: Annotated[int, Field(gt=0)]) -> str:
        \"\"\"Pay back an order.\"\"\"
        return await context.deps.payments.refund(order, cents, key=context.idempotency_key)

Whoever calls a tool, the arguments are validated first: a model through `run`, code through `refund(context, "A1", 5)`.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from autogen_core.tools import ParametersSchema, ToolSchema
from pydantic import BaseModel, JsonValue

from stagebell.errors import InvalidArguments, ToolRefused
from stagebell.tools.autogen_face import AutogenFace
from stagebell.tools.containing import in_thread
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import ApprovalRule, AskStatus, Authorise, Compensate, Declared, Effects, RateLimit, names
from stagebell.tools.docstrings import parse_docstring
from stagebell.tools.schema import Signature
from stagebell.tools.telling import tell_call, traced
from stagebell.tools.values import as_json

DepsT_contra = TypeVar("DepsT_contra", contravariant=True)
D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what the interfaces of models take


class TypedTool(ABC, Generic[DepsT_contra]):
    """A tool as the executor knows it, wherever it came from; made by `tool`, or of a tool of AutoGen's.

    Attributes:
        name: what the model calls it.
        description: what the model is told.
        declares: what it says of its effects.
    """

    name: str
    description: str
    declares: Declared
    parameters: ParametersSchema

    @property
    def schema(self) -> ToolSchema:
        """What the model is shown."""
        return ToolSchema(name=self.name, description=self.description, parameters=self.parameters, strict=False)

    @abstractmethod
    def validate(self, arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
        """The arguments as JSON data, with defaults filled in.

        Raises:
            InvalidArguments: they are not what the tool takes.
        """

    def checked(self, arguments: Mapping[str, Any]) -> Checked[DepsT_contra]:
        """The arguments, found valid, for a call that may follow. Raises InvalidArguments as `validate` does."""
        return Checked(self, arguments, self.validate(arguments))

    @abstractmethod
    async def run(self, arguments: Mapping[str, Any], context: ToolContext[DepsT_contra]) -> JsonValue:
        """Validate the arguments and run the tool, with nothing around it: no ledger, no time limit, no approval.

        Raises:
            InvalidArguments: they are not what the tool takes.
            NotJson: what the tool returned cannot be written as JSON.
            Exception: whatever the tool raised.
        """


class Checked(Generic[DepsT_contra]):
    """Arguments that a tool has found valid.

    Args:
        tool: which tool.
        given: the arguments as they were given.
        data: the same as JSON data, with defaults filled in.
    """

    def __init__(
        self, tool: TypedTool[DepsT_contra], given: Mapping[str, Any], data: dict[str, JsonValue] | None = None
    ) -> None:
        self._tool = tool
        self._given = given
        self._data = data

    @property
    def data(self) -> dict[str, JsonValue]:
        """The arguments as JSON data, with defaults filled in."""
        if self._data is None:
            self._data = self._written()
        return self._data

    def _written(self) -> dict[str, JsonValue]:
        return self._tool.validate(self._given)

    def run(self, context: ToolContext[DepsT_contra]) -> Coroutine[Any, Any, JsonValue]:
        """Run the tool with them; raises what `TypedTool.run` does."""
        return self._tool.run(self._given, context)


class CallableTool(TypedTool[DepsT_contra], AutogenFace, Generic[DepsT_contra]):
    """A tool made of a function."""

    def __init__(self, function: Callable[..., Any], signature: Signature, told: tuple[str, str, Declared]) -> None:
        self.name, self.description, self.declares = told
        self.function = function
        self.signature = signature
        self.parameters = signature.parameters
        self._is_async = _is_async(function)
        self.__name__ = self.name
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
        return self.signature.validate(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext[DepsT_contra]) -> JsonValue:
        return await self.run_read(self.signature.read(arguments), arguments, context)

    def checked(self, arguments: Mapping[str, Any]) -> Checked[DepsT_contra]:
        return _Read(self, arguments, self.signature.read(arguments))

    async def run_read(
        self, read: BaseModel, arguments: Mapping[str, Any], context: ToolContext[DepsT_contra]
    ) -> JsonValue:
        """As `run`, with arguments that the signature has read."""
        first, values = (context,) if self.signature.takes_context else (), self.signature.as_values(read)
        work = self.function(*first, **values) if self._is_async else self._in_thread(first, values)
        result = await traced(work, self.name, self.description, context.call_id)
        value = as_json(result, f"the result of tool {self.name!r}")
        tell_call(self.name, lambda: self.validate(arguments), value)
        return value

    async def _in_thread(self, first: tuple[Any, ...], values: Mapping[str, Any]) -> Any:
        result = await in_thread(self.function, *first, **values)  # it may block
        return await result if inspect.isawaitable(result) else result

    def call(self, first: tuple[Any, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the function as code does, with its arguments validated.

        Raises:
            InvalidArguments: they are not what the function takes.
        """
        by_name = self.signature.named(args)
        if twice := by_name.keys() & kwargs.keys():
            raise InvalidArguments(f"tool {self.name!r} got {', '.join(sorted(twice))} twice")
        return self.function(*first, **self.signature.values({**by_name, **kwargs}))


class _Read(Checked[DepsT_contra], Generic[DepsT_contra]):
    """Arguments that were read; the first run uses what was read, a further one reads anew: a tool may change them."""

    def __init__(self, tool: CallableTool[DepsT_contra], given: Mapping[str, Any], read: BaseModel) -> None:
        super().__init__(tool, given)
        self._callable = tool
        self._read: BaseModel | None = read

    def _written(self) -> dict[str, JsonValue]:
        return super()._written() if self._read is None else self._callable.signature.as_data(self._read)

    def run(self, context: ToolContext[DepsT_contra]) -> Coroutine[Any, Any, JsonValue]:
        read, self._read = self._read, None
        if read is None:
            return super().run(context)
        return self._callable.run_read(read, self._given, context)


class PlainTool(CallableTool[object], Generic[P, R_co]):
    """A tool made of a function that wants no context; it works whatever the dependencies are."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function, with its arguments validated. Raises InvalidArguments."""
        return cast("R_co", self.call((), args, kwargs))


class ContextTool(CallableTool[DepsT_contra], Generic[DepsT_contra, P, R_co]):
    """A tool made of a function whose first argument is a `ToolContext`."""

    def __call__(self, context: ToolContext[DepsT_contra], *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function, with its arguments validated. Raises InvalidArguments."""
        return cast("R_co", self.call((context,), args, kwargs))


class ToolOptions(TypedDict, total=False):
    """What can be said of a tool beside its function; see `tool`."""

    name: str
    description: str
    effects: Effects | None
    status: AskStatus | None
    compensate: Compensate | None
    requires_approval: ApprovalRule
    parallel_safe: bool
    reads: Collection[str]
    writes: Collection[str]
    timeout: float | None
    retries: int
    rate_limit: RateLimit | str | None
    authorise: Authorise | None


class Decorator:
    """`@tool(…)` before it has the function."""

    def __init__(self, options: ToolOptions) -> None:
        self._options = options

    @overload
    def __call__(self, function: Callable[Concatenate[ToolContext[D], P], R], /) -> ContextTool[D, P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTool[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> CallableTool[Any]:
        """Make the tool."""
        return _make(function, self._options)


@overload
def tool(
    function: Callable[Concatenate[ToolContext[D], P], R], /, **options: Unpack[ToolOptions]
) -> ContextTool[D, P, R]: ...
@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> PlainTool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Decorator: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> CallableTool[Any] | Decorator:
    """Make a tool of a function; as `@tool`, `@tool(timeout=5)` or `tool(function, timeout=5)`.

    Each parameter has an annotation that pydantic knows; `Annotated[int, Field(ge=1)]` limits it. A first parameter of
    type `ToolContext[Deps]` is not shown to the model. The docstring describes the tool and, in its section of
    arguments, each of them. What the function returns has to be writable as JSON. A function that is not async runs in
    a thread.

    Args:
        function: what the tool does.
        name: what the model calls it; by default the name of the function.
        description: what the model is told; by default the docstring's text before its sections.
        effects: "none" (reads only), "idempotent" (a call that is repeated with the same idempotency key has one
            effect) or "side" (each call has an effect of its own). A tool that does not say so is never run again
            after a crash.
        status: asks the service outside what became of a call: `async def status(context) -> Status`.
        compensate: undoes a call that succeeded: `compensate(arguments, result, context)`, async or not.
        requires_approval: True, or a function of the arguments that is true when a person has to agree first.
        parallel_safe: calls may overlap with those of other tools that declare this, or what they read and write.
        reads: names of what calls read.
        writes: names of what calls change; two calls never overlap when one writes what the other reads or writes.
        timeout: seconds after which a call is cancelled.
        retries: how often a call that raised `TransientError`, or ran out of time, is tried again.
        rate_limit: the most calls, as `RateLimit` or like "2/s".
        authorise: whether a call with these arguments is allowed: `authorise(arguments, context)`, async or not;
            False or `Denied` refuses it.

    Returns:
        The tool; called as a function, it validates its arguments too.

    Raises:
        ToolRefused: the tool cannot be used as it is; the text says why.
    """
    return Decorator(options) if function is None else _make(function, options)


def _make(function: Callable[..., Any], options: ToolOptions) -> CallableTool[Any]:
    name = options.get("name") or str(getattr(function, "__name__", type(function).__name__))
    if not _NAME.fullmatch(name):
        raise ToolRefused(name, "models take names of letters, digits, _ and -, up to 64 characters: give it name=")
    docstring = parse_docstring(inspect.getdoc(function))
    try:
        signature = Signature(function, docstring)
        declares = _declared(options)
    except ValueError as error:
        raise ToolRefused(name, str(error)) from error
    if problem := declares.problem():
        raise ToolRefused(name, problem)
    told = name, options.get("description", docstring.description), declares
    if signature.takes_context:
        return cast("type[ContextTool[Any, ..., Any]]", ContextTool)(function, signature, told)
    return cast("type[PlainTool[..., Any]]", PlainTool)(function, signature, told)


def _declared(options: ToolOptions) -> Declared:
    rate = options.get("rate_limit")
    return Declared(
        effects=options.get("effects"),
        status=options.get("status"),
        compensate=options.get("compensate"),
        requires_approval=options.get("requires_approval", False),
        parallel_safe=options.get("parallel_safe", False),
        reads=names(options.get("reads", ()), "reads"),
        writes=names(options.get("writes", ()), "writes"),
        timeout=options.get("timeout"),
        retries=options.get("retries", 0),
        rate_limit=RateLimit.parse(rate) if isinstance(rate, str) else rate,
        authorise=options.get("authorise"),
    )


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
