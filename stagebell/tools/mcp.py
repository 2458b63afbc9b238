"""Servers that speak the Model Context Protocol, as workbenches: one line each, next to the other tools.

ToolAgent("Tools.", [refund, mcp_tools("https://tools.example.com/mcp"), mcp_tools("uvx mcp-server-time")])
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from autogen_core.tools import Workbench

from stagebell.tools.adapters import limit_calls

_LATER: Final = 5.0  # seconds after which the client gives up by itself, when we have done so before


def mcp_tools(
    server: str | Sequence[str],
    *,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> Workbench:
    """The tools of an MCP server. Needs the extra: `pip install stagebell[mcp]`.

    The server is started, or connected to, when its tools are first asked for, and left when the agent is closed. Its
    tools declare nothing of their effects, so a call that may have been made is not made again.

    Args:
        server: a URL (that of an SSE endpoint ends in "/sse"), or a command that speaks the protocol on its standard
            input and output, as one text or as a list of words.
        headers: sent with each request to a URL.
        env: variables of the environment of a command, beside the few that it gets in any case.
        timeout: seconds that a call may take; one that takes longer ends as `timeout`.

    Returns:
        A workbench of AutoGen's.

    Raises:
        ImportError: the extra is not installed.
        ValueError: the command is empty.
    """
    parts = _parts()
    if isinstance(server, str) and server.startswith(("http://", "https://")):
        return _workbench(parts, _remote(parts, server, headers, timeout), timeout)
    words = shlex.split(server) if isinstance(server, str) else list(server)
    if not words:
        raise ValueError("an MCP server is a URL or a command, got nothing")
    arguments = {"command": words[0], "args": words[1:], "read_timeout_seconds": timeout + _LATER}
    return _workbench(parts, parts.StdioServerParams(**arguments, env=None if env is None else dict(env)), timeout)


def _remote(parts: Any, url: str, headers: Mapping[str, str] | None, timeout: float) -> Any:
    made = parts.SseServerParams if url.rstrip("/").endswith("/sse") else parts.StreamableHttpServerParams
    return made(url=url, headers=dict(headers or {}), timeout=timeout)


def _workbench(parts: Any, params: Any, timeout: float) -> Workbench:
    workbench: Workbench = parts.McpWorkbench(params)
    limit_calls(workbench, timeout)
    return workbench


def _parts() -> Any:
    try:
        return import_module("autogen_ext.tools.mcp")
    except ImportError as error:
        raise ImportError(
            "tools of MCP servers need the extra: pip install 'stagebell[mcp]'", name=error.name
        ) from error
