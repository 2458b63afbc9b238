"""What an answer has to be before it is the output of a run: of the declared type, and good in the user's eyes.

text of the model ──▶ JSON ──▶ the output type ──▶ guardrails ──▶ validators ──▶ output
                       └──────────────┴────────────── not valid: the model is told why, so many times
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, cast

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from stagebell.agents.context import Deps, Output, RunContext
from stagebell.errors import OutputRejected
from stagebell.messages.reasons import explain
from stagebell.tools.guardrails import Guardrail, Refuse, Rewrite, Subject, judge
from stagebell.tools.policy import cleaned

Validator: TypeAlias = Callable[[Output, RunContext[Deps]], Output | Awaitable[Output | None] | None]
"""Returns the output, perhaps another one (None: as it is), or raises `OutputRejected` with a reason for the model."""

_FENCED: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rejected:
    """It is no output, and why; with `final`, the model is not asked for another."""

    error: str
    final: bool = False


class Outputs(Generic[Deps, Output]):
    """What an agent's outputs have to be.

    Args:
        output_type: anything pydantic can describe; `str` takes the text as it is.
        validators: look at outputs of that type, one after the other.
        guardrails: those at "output" look at them before.
    """

    def __init__(
        self,
        output_type: type[Output],
        validators: Sequence[Validator[Output, Deps]] = (),
        guardrails: Sequence[Guardrail] = (),
    ) -> None:
        self.type = output_type
        self.is_text = output_type is str
        self._adapter = cast("TypeAdapter[Output]", _adapter(cast("Any", output_type)))
        self._validators = tuple(validators)
        self._guardrails = [each for each in guardrails if "output" in each.places]

    @property
    def model(self) -> type[BaseModel] | None:
        """The output type, if it is a model of pydantic's."""
        kind: Any = self.type  # it need not be a class: unions and the like are taken, too
        return kind if inspect.isclass(kind) and issubclass(kind, BaseModel) else None

    def schema(self) -> str:
        """The JSON schema of outputs, as text."""
        return _schema(cast("Any", self.type))

    async def check(self, answer: str, context: RunContext[Deps]) -> JsonValue | Rejected:
        """The output in an answer of the model, as JSON data; or why it is none."""
        try:
            value = cast("Output", answer) if self.is_text else self._adapter.validate_json(_json_in(answer))
        except ValidationError as error:
            return Rejected(explain(error))
        return await self._checked(value, context)

    async def check_value(self, output: JsonValue, context: RunContext[Deps]) -> JsonValue | Rejected:
        """The same, of the output of another agent."""
        try:
            value = self._adapter.validate_python(output)
        except ValidationError as error:
            return Rejected(explain(error))
        return await self._checked(value, context)

    async def _checked(self, value: Output, context: RunContext[Deps]) -> JsonValue | Rejected:
        if self._guardrails:
            verdict = judge(self._guardrails, Subject("output", value))
            if isinstance(verdict, Refuse):
                return Rejected(f"refused by {verdict.by}: {verdict.reason}", final=True)
            if isinstance(verdict, Rewrite):
                value = self._adapter.validate_python(verdict.value)
        try:
            for validate in self._validators:
                said = validate(value, context)
                found = cast("Output | None", await said if inspect.isawaitable(said) else said)
                value = value if found is None else found
        except (OutputRejected, ValueError) as error:
            return Rejected(cleaned(str(error)) or type(error).__name__)
        return cast("JsonValue", self._adapter.dump_python(value, mode="json"))


def _json_in(answer: str) -> str:
    """The JSON in an answer; models like to put it between fences."""
    found = None if answer.lstrip()[:1] in ("{", "[", '"') else _FENCED.search(answer)
    return found[1] if found is not None else answer


@lru_cache(maxsize=256)
def _adapter(output_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(output_type)


@lru_cache(maxsize=256)
def _schema(output_type: Any) -> str:
    return json.dumps(_adapter(output_type).json_schema(), separators=(",", ":"), ensure_ascii=False)
