"""The tools of an MCP server, by one line."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from autogen_core import AgentId, FunctionCall
from autogen_core.tool_agent import InvalidToolArgumentsException, ToolExecutionException

from stagebell import LocalRuntime
from stagebell.tools.agent import ToolAgent
from stagebell.tools.mcp import mcp_tools
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]


async def ask(runtime: Any, name: str = "price", **arguments: Any) -> Any:
    call = FunctionCall(id="1", name=name, arguments=json.dumps(arguments))
    return await asyncio.wait_for(runtime.send_message(call, AgentId("tools", "one")), 30)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(port: int) -> Iterator[str]:
    """A server that listens; it is killed with the block."""
    with subprocess.Popen([*COMMAND, str(port)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("running on" in line for line in process.stderr)  # it says so when it listens
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


@pytest.fixture(params=["command", "url"])
def server(request: pytest.FixtureRequest) -> Iterator[str | list[str]]:
    """Where a server is."""
    if request.param == "command":
        yield COMMAND
        return
    with serving(free_port()) as url:
        yield url


async def test_a_server_of_either_kind_is_one_line(server: str | list[str]) -> None:
    async with LocalRuntime() as runtime:
        await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [mcp_tools(server)]))
        assert (await ask(runtime, item="tea", count=2)).content == "6"
        with pytest.raises(ToolExecutionException, match="the moon is not for sale"):
            await ask(runtime, item="moon")
        with pytest.raises(InvalidToolArgumentsException, match="item missing"):
            await ask(runtime)
        for name, given, said in (("open_shelf", {}, "open"), ("shelf", {"number": 3}, "tea on shelf 3")):
            assert (await ask(runtime, name, **given)).content == said


async def test_a_call_that_takes_too_long_ends_and_the_next_one_is_made() -> None:
    async with LocalRuntime() as runtime:
        await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [mcp_tools(COMMAND, timeout=2)]))
        with pytest.raises(ToolExecutionException, match="did not end within 2 seconds") as late:
            await ask(runtime, "wait", seconds=60)
        assert vars(late.value)["code"] == "timeout"
        assert (await ask(runtime, "wait", seconds=0)).content == "at last"


async def test_a_server_that_was_restarted_is_found_again() -> None:
    """Its session is gone, and nobody has to start the agent anew."""
    port = free_port()
    async with LocalRuntime() as runtime:
        with serving(port) as url:
            await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", [mcp_tools(url, timeout=2)]))
            agent = await runtime.try_get_underlying_agent_instance(AgentId("tools", "one"), ToolAgent)
            agent.toolset._fresh_for, agent.toolset._patience = 0, 2.0
            assert (await ask(runtime, item="tea", count=2)).content == "6"
        with pytest.raises(ToolExecutionException):
            await ask(runtime, item="tea")

        async def answers() -> bool:
            try:
                return bool((await ask(runtime, item="tea", count=3)).content == "9")
            except ToolExecutionException:
                return False  # a machine that is busy may need another try

        with serving(port):
            await eventually(answers, 20)


def test_a_server_is_a_url_or_a_command() -> None:
    for server, kind in {
        "https://example.com/mcp": "StreamableHttpServerParams",
        "https://example.com/sse": "SseServerParams",
        "uvx mcp-server-time --utc": "StdioServerParams",
    }.items():
        workbench: Any = mcp_tools(server)
        assert type(workbench.server_params).__name__ == kind
    assert workbench.server_params.args == ["mcp-server-time", "--utc"]
    with pytest.raises(ValueError, match="a URL or a command"):
        mcp_tools("")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "autogen_ext.tools.mcp", None)
    with pytest.raises(ImportError, match=r"stagebell\[mcp\]"):
        mcp_tools("https://example.com/mcp")
