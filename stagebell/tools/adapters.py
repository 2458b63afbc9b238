"""AutoGen's tools and workbenches as tools of ours. They declare nothing, so none is ever run again blindly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from autogen_core.tools import ParametersSchema, Tool, ToolResult, ToolSchema, Workbench
from pydantic import JsonValue, ValidationError

from stagebell.errors import InvalidArguments, ToolError
from stagebell.messages.reasons import explain
from stagebell.tools.context import ToolContext
from stagebell.tools.declared import Declared
from stagebell.tools.telling import traced_unless_it_does
from stagebell.tools.tool import TypedTool

_NO_PARAMETERS = ParametersSchema(type="object", properties={}, required=[], additionalProperties=False)


_limits: Final[WeakKeyDictionary[Workbench, float]] = WeakKeyDictionary()


def limit_calls(workbench: Workbench, seconds: float) -> None:
    """Let no call of a tool of this workbench take longer."""
    _limits[workbench] = seconds


class AutogenTool(TypedTool[object]):
    """A `FunctionTool` or any other `BaseTool` of AutoGen's; its results are the texts that AutoGen makes of them."""

    def __init__(self, tool: Tool, declares: Declared | None = None) -> None:
        self.tool = tool
        self.name = tool.name
        self.description = tool.description
        self._schema = tool.schema  # AutoGen makes it anew each time
        self.parameters = self._schema.get("parameters", _NO_PARAMETERS)
        self.declares = declares or Declared()

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
        try:
            self.tool.args_type().model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(f"invalid arguments: {explain(error)}") from error
        return dict(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext[object]) -> JsonValue:
        work = self.tool.run_json(arguments, context.cancellation_token, call_id=context.call_id)
        result = await traced_unless_it_does(work, self.name, self.description, context.call_id)
        return self.tool.return_value_as_string(result)


class WorkbenchTool(TypedTool[object]):
    """One tool of a workbench; who serves it validates its arguments."""

    def __init__(self, workbench: Workbench, schema: ToolSchema, declares: Declared | None = None) -> None:
        self.workbench = workbench
        self.name = schema["name"]
        self.description = schema.get("description", "")
        self.parameters = schema.get("parameters", _NO_PARAMETERS)
        self.declares = declares or Declared(timeout=_limits.get(workbench))
        self._schema = schema

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
        missing = [name for name in self.parameters.get("required", ()) if name not in arguments]
        if missing:
            raise InvalidArguments(f"invalid arguments: {', '.join(missing)} missing")
        properties = cast("Mapping[str, Any]", self.parameters.get("properties", {}))
        unknown = [name for name in arguments if name not in properties]
        if unknown and self.parameters.get("additionalProperties") is False:
            raise InvalidArguments(f"invalid arguments: {', '.join(map(repr, unknown))} not known")
        return dict(arguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext[object]) -> JsonValue:
        work = self.workbench.call_tool(self.name, dict(arguments), context.cancellation_token, call_id=context.call_id)
        result: ToolResult = await traced_unless_it_does(work, self.name, self.description, context.call_id)
        if result.is_error:
            raise ToolError(result.to_text() or f"tool {self.name!r} failed and did not say why")
        return result.to_text()
