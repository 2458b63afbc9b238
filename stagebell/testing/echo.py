"""A model that calls every tool, so that a test sees them all run without writing down a single call."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage, FunctionExecutionResult, FunctionExecutionResultMessage, LLMMessage
from autogen_core.tools import Tool, ToolSchema
from pydantic import JsonValue

from stagebell.testing.model import Answer, ScriptedModel
from stagebell.testing.schema_data import example_of


class EchoModel(ScriptedModel):
    """A model that calls every tool once, with the smallest arguments that its schema allows, and then ends.

    Its final text is a JSON object from the names of the tools to their results; so a test sees at a glance which tools
    ran. The arguments fit the schema and nothing more: branches of your own rules need a `ScriptedModel` that knows
    them.

    Args:
        only: names of the tools that it calls; None: all.
        output: what it says in the end instead, as it is (text) or as JSON.
        arguments: for tools whose smallest arguments will not do, the arguments.
    """

    def __init__(
        self,
        *,
        only: Collection[str] | None = None,
        output: JsonValue = None,
        arguments: Mapping[str, Mapping[str, JsonValue]] | None = None,
    ) -> None:
        super().__init__(self._answer_to)
        self._only = only
        self._output = output
        self._arguments = arguments or {}

    def _answer_to(self, messages: Sequence[LLMMessage], tools: Sequence[Tool | ToolSchema]) -> Answer:
        since = _since_last_task(messages)
        called = {call.name for message in since if isinstance(message, AssistantMessage) for call in _calls(message)}
        wanted = [tool.schema if isinstance(tool, Tool) else tool for tool in tools]
        left = [schema for schema in wanted if schema["name"] not in called and self._calls(schema["name"])]
        if not left:
            return self._final(since)
        return [self._call(number, schema) for number, schema in enumerate(left, len(messages))]

    def _calls(self, name: str) -> bool:
        return self._only is None or name in self._only

    def _call(self, number: int, schema: ToolSchema) -> FunctionCall:
        name = schema["name"]
        arguments = self._arguments.get(name)
        if arguments is None:
            arguments = cast(
                "Mapping[str, JsonValue]", example_of(cast("Mapping[str, Any]", schema.get("parameters", {})))
            )
        return FunctionCall(id=f"echo-{number}", name=name, arguments=json.dumps(arguments))

    def _final(self, since: Sequence[LLMMessage]) -> str:
        if self._output is not None:
            return self._output if isinstance(self._output, str) else json.dumps(self._output)
        results = [result for message in since for result in _results(message)]
        return json.dumps({result.name: result.content for result in results}, ensure_ascii=False)


def _since_last_task(messages: Sequence[LLMMessage]) -> Sequence[LLMMessage]:
    last = max((place for place, message in enumerate(messages) if message.type == "UserMessage"), default=-1)
    return messages[last + 1 :]


def _calls(message: AssistantMessage) -> list[FunctionCall]:
    return message.content if isinstance(message.content, list) else []


def _results(message: LLMMessage) -> Sequence[FunctionExecutionResult]:
    return message.content if isinstance(message, FunctionExecutionResultMessage) else ()
