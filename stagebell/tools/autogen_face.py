"""What AutoGen's `Tool` protocol asks for, so that our tools can be handed to its model clients and helpers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from autogen_core import CancellationToken
from pydantic import BaseModel, JsonValue

from stagebell.errors import ToolError
from stagebell.tools.context import ToolContext

if TYPE_CHECKING:
    from stagebell.tools.schema import Signature


class AutogenFace:
    """The part of `autogen_core.tools.Tool` that says how a tool is run and what its types are."""

    name: str
    signature: Signature
    run: Callable[[Mapping[str, Any], ToolContext[Any]], Any]

    def args_type(self) -> type[BaseModel]:
        """The model of the arguments."""
        return self.signature.model

    def return_type(self) -> type[Any]:
        """What the function says it returns."""
        returns: type[Any] = self.signature.returns
        return returns

    def state_type(self) -> type[BaseModel] | None:
        """Such tools have no state."""
        return None

    def return_value_as_string(self, value: Any) -> str:
        """A text as it is, everything else as JSON."""
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    async def run_json(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> JsonValue:
        """Run the tool as AutoGen's agents do: validated, but with none of the steps that `ToolAgent` adds.

        Raises:
            ToolError: it wants dependencies, which AutoGen has none of.
        """
        if self.signature.takes_context:
            raise ToolError(
                f"tool {self.name!r} takes a ToolContext: let a ToolAgent or ModelAgent of stagebell run it"
            )
        call = call_id or uuid4().hex
        context = ToolContext[object](None, "autogen", call, self.name, cancellation_token)
        value: JsonValue = await self.run(args, context)
        return value

    async def save_state_json(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}

    async def load_state_json(self, state: Mapping[str, Any]) -> None:
        """Nothing to load."""
