"""What the functions of an agent are told of the run that goes on: instructions, validators, hooks, factories."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic

from autogen_core import AgentId, CancellationToken
from pydantic import BaseModel, JsonValue
from pydantic.errors import PydanticUserError
from typing_extensions import TypeVar

from stagebell.agents.state import LoopState
from stagebell.messages.conversation import AnyEntry, Usage

if TYPE_CHECKING:
    from autogen_core import AgentRuntime

Deps = TypeVar("Deps", default=Any)
Output = TypeVar("Output", default=str)

current_run: ContextVar[RunContext[Any] | None] = ContextVar("stagebell_run", default=None)
"""The run that the running code belongs to, also in tasks that it starts; None outside of runs."""


class RunContext(Generic[Deps]):
    """The run that goes on, as it is now.

    Attributes:
        agent: whose run it is.
        runtime: where it runs.
        deps: what the agent's factory of dependencies made for the run.
        cancellation_token: cancelled when nobody wants the run's work any more.
    """

    __slots__ = ("_business", "_run", "_state", "agent", "cancellation_token", "deps", "runtime")

    def __init__(
        self,
        agent: AgentId,
        runtime: AgentRuntime,
        deps: Deps,
        token: CancellationToken,
        state: LoopState,
        business: type[BaseModel] | None,
    ) -> None:
        run = state.control.run
        assert run is not None
        self.agent = agent
        self.runtime = runtime
        self.deps = deps
        self.cancellation_token = token
        self._state = state
        self._run = run
        self._business = business

    @property
    def run_id(self) -> str:
        """Names the run."""
        return self._run.run_id

    @property
    def task(self) -> str:
        """What the run is to do."""
        return self._run.job.content

    @property
    def deps_key(self) -> str:
        """What the task said of its dependencies."""
        return self._run.job.deps_key

    @property
    def tokens_to(self) -> str:
        """Who reads the answers while they are written; empty for nobody."""
        return self._run.job.tokens_to

    @property
    def step(self) -> int:
        """How many answers the model gave so far."""
        return self._run.step

    @property
    def usage(self) -> Usage:
        """What they took."""
        return self._run.usage

    @property
    def conversation(self) -> Sequence[AnyEntry]:
        """All that happened, in earlier runs of the conversation too."""
        return self._state.conversation

    @property
    def business(self) -> Any:
        """The business section: a copy in the agent's model of it, else JSON data."""
        return read_business(self._business, self._state.business)


@lru_cache(maxsize=256)
def checked_business(model: type[BaseModel] | None) -> type[BaseModel] | None:
    """The same model, which can describe a business section.

    Raises:
        ValueError: a field of it holds what is no JSON: a connection, a lock, a function.
    """
    if model is None:
        return None
    try:
        model.model_json_schema(mode="serialization")
    except PydanticUserError as error:
        text = f"{model.__name__} cannot be a business section, which is stored as JSON: {error.message}"
        raise ValueError(f"{text}; what tools work with comes from `deps`") from error
    return model


def read_business(model: type[BaseModel] | None, data: JsonValue) -> Any:
    """The business section in the user's model; of nothing, the model's defaults.

    Raises:
        ValidationError: it is not what the model asks for.
    """
    return data if model is None else model.model_validate({} if data is None else data)
