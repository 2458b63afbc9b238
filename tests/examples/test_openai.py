"""Real clients of OpenAI's protocol, against a server of this machine: in a process of its own, as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.openai_server import DOWN, HANG, OpenAIServer, call

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.evaluation

PROGRAM = """
import asyncio, sys
from autogen_core import ClosureAgent, ClosureContext, MessageContext, TypeSubscription
from autogen_ext.models.openai import OpenAIChatCompletionClient
from stagebell import Limits, LocalRuntime, ModelAgent, Runs
from stagebell.agents.messages import TokenChunk

CAN = dict(vision=False, function_calling=True, json_output=True, structured_output=True, family="unknown",
           multiple_system_messages=True)
KINDS = {
    "stream": {"stream": True},
    "retry": {"limits": Limits(model_retries=1)},
    "timeout": {"request_timeout": 0.5, "limits": Limits(model_retries=0)},
    "cancel": {},
}
client = OpenAIChatCompletionClient(model="mine", base_url=sys.argv[1], api_key="none", model_info=CAN, max_retries=0)

async def hear(context: ClosureContext, message: TokenChunk, ctx: MessageContext) -> None:
    print("chunk", message.text)

async def main():
    async with LocalRuntime() as runtime:
        await ClosureAgent.register_closure(
            runtime, "screen", hear, subscriptions=lambda: [TypeSubscription("stream.tokens", "screen")]
        )
        for kind, options in KINDS.items():
            await ModelAgent.register(runtime, kind, lambda: ModelAgent(client, **options))
            run = await Runs(runtime).start(kind, "Say something.")
            if kind == "cancel":
                await asyncio.sleep(0.5)
                await run.cancel()
            result = await run.result()
            print(kind, result.status, result.output, result.text)

asyncio.run(main())
"""


def run(folder: Path, server: OpenAIServer, *arguments: str) -> list[str]:
    """What a program prints; one that asks for OpenAI finds the server."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_typed_loop_with_a_client_of_openais(tmp_path: Path) -> None:
    answers = [call("temperature", day="today"), '{"coat": "very"}', '{"coat": true, "why": "It is cold."}']
    with OpenAIServer(answers).running() as server:
        printed = run(tmp_path, server, str(PROJECT / "examples" / "06_typed_loop.py"), "--openai")
    assert printed[-1] == "coat=True why='It is cold.'"
    first, second, third = server.requests
    assert first["path"] == "/v1/chat/completions"
    assert first["tools"][0]["function"]["name"] == "temperature"
    assert first["response_format"] == {"type": "json_object"}
    assert "JSON" in first["messages"][0]["content"]
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "call_temperature", "content": "3.0"}
    assert "could not be used" in third["messages"][-1]["content"]


def test_the_saga_with_a_client_of_openais(tmp_path: Path) -> None:
    given = {"order": "A1", "cents": 500}
    answers = [call(name, **given) for name in ("expect_goods", "write_credit_note", "pay_back")]
    with OpenAIServer(answers).running() as server:
        printed = run(tmp_path, server, str(PROJECT / "examples" / "07_refund_saga.py"), "--openai")
    assert printed[:2] == ["taken back: credit note of 500 cents", "taken back: goods of A1"]


def test_a_stream_an_error_and_a_server_that_says_nothing(tmp_path: Path) -> None:
    """The error is tried again, and whoever is kept waiting for too long, or not wanted any more, hangs up."""
    with OpenAIServer(["one two", DOWN, "fine", HANG, HANG]).running() as server:
        *chunks, streamed, retried, late, cancelled = run(tmp_path, server, "-c", PROGRAM, server.url)
        for _ in range(100):
            if server.left == 2:
                break
            time.sleep(0.05)
        assert server.left == 2
    assert [chunk.strip() for chunk in chunks] == ["chunk one", "chunk two", "chunk"]
    assert streamed.startswith("stream succeeded one two")
    assert retried == "retry succeeded fine "
    assert late.startswith("timeout failed")
    assert "within 0.5 seconds" in late
    assert cancelled.startswith("cancel cancelled")
    assert len(server.requests) == 5
