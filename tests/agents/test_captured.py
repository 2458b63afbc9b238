"""What models were asked in a run is there for a test to see, also when it failed; and no real one is asked."""

from __future__ import annotations

import asyncio

import pytest

from stagebell import LocalRuntime
from stagebell.agents.limits import Limits
from stagebell.agents.model_agent import ModelAgent
from stagebell.testing import ModelRequestForbidden, ScriptedModel, capture_messages
from tests.support.loops import host_model, run, wants

pytestmark = pytest.mark.runtime


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_the_exchange_is_there_although_the_run_fails() -> None:
    def script(messages: object, tools: object) -> list[object]:
        if script.asked:
            raise ConnectionError("the line broke")
        script.asked = True
        return [wants("add", a=1, b=2)]

    script.asked = False
    async with LocalRuntime() as runtime:
        await host_model(runtime, ScriptedModel(script), tools=[add], limits=Limits(model_retries=0))
        with capture_messages() as exchanges:
            result = await run(runtime)
    assert (result.status, result.reason) == ("failed", "model_error")
    first, second = exchanges
    assert (first.agent, first.run_id, first.error) == ("assistant/c", result.run_id, None)
    assert first.answer is not None
    assert [tool["name"] for tool in first.tools if isinstance(tool, dict)] == ["add"]
    assert "'3'" in str(second.messages[-1].content)
    assert second.answer is None
    assert isinstance(second.error, ConnectionError)


async def test_a_client_that_would_open_a_socket_is_stopped_before_it_does() -> None:
    """A network is not even tried: this test may connect to nothing at all."""
    from autogen_ext.models.openai import OpenAIChatCompletionClient  # takes long to import

    client = OpenAIChatCompletionClient(model="gpt-4o", api_key="none", base_url="http://127.0.0.1:9/v1", max_retries=0)
    async with LocalRuntime() as runtime:
        await ModelAgent.register(runtime, "real", lambda: ModelAgent(client))
        with capture_messages() as exchanges:
            result = await asyncio.wait_for(run(runtime, type="real"), 20)
    assert (result.status, result.reason) == ("failed", "model_error")
    assert "forbid_model_requests" in result.text
    (exchange,) = exchanges
    assert isinstance(exchange.error, ModelRequestForbidden)
