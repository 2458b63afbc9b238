"""`stagebell tools audit`: what the tools of a program's agents declare."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

from autogen_core import AgentId
from autogen_core.tool_agent import ToolAgent as PlainToolAgent
from rich.console import Console
from rich.text import Text

from stagebell.runtime.engine.catalog import HostedType
from stagebell.runtime.local.runtime import LocalRuntime
from stagebell.runtime.ops.console import CommandFailed, give, one_line
from stagebell.runtime.ops.reading import WIDTH_OF_A_PIPE
from stagebell.runtime.ops.setups import Setup, load_setup, set_up
from stagebell.runtime.ops.tables import Row, table
from stagebell.tools.declared import Strategy
from stagebell.tools.tool import TypedTool
from stagebell.tools.toolset import Toolset

_TOOLS = "agent type|tool|effects|strategy|approval|#timeout|overlaps"


@dataclass(frozen=True, slots=True)
class AuditedTool:
    """What one tool of one agent type declares; `timeout` in seconds, None for none."""

    agent_type: str
    tool: str
    effects: str | None
    strategy: str
    approval: str
    timeout: float | None
    may_overlap: bool
    reads: list[str]
    writes: list[str]


@dataclass(frozen=True, slots=True)
class Audit:
    """The tools that were found, and the agent types whose tools are not known, with the reason."""

    tools: list[AuditedTool]
    failures: dict[str, str]

    @property
    def undeclared(self) -> int:
        """How many tools do not say what their effects are."""
        return sum(each.strategy == Strategy.UNDECLARED for each in self.tools)


class Stage(LocalRuntime):
    """A runtime that is set up and never started, to look at the agents that it would host."""

    async def audit(self) -> Audit:
        """Make one agent of each type, and list its tools."""
        found = Audit([], {})
        for hosted in self._catalog.types.values():
            try:
                found.tools.extend(await self._tools_of(hosted))
            except Exception as error:
                found.failures[hosted.name] = f"{type(error).__name__}: {one_line(error)}"
        return found

    async def _tools_of(self, hosted: HostedType) -> list[AuditedTool]:
        agent = await self._catalog.make(hosted, AgentId(hosted.name, "audit"))
        try:
            tools = toolset_of(agent)
            if tools is None:
                return []
            await tools.ready()
            return [_audited(hosted.name, tool) for tool in tools]
        finally:
            await agent.close()


def toolset_of(agent: Any) -> Toolset[Any] | None:
    """The tools of an agent of ours, or of AutoGen's `ToolAgent`; None for another."""
    if isinstance(agent, PlainToolAgent):
        plain = Toolset[Any]()
        for tool in agent.tools:
            plain.add(tool)
        return plain
    tools: object = getattr(agent, "toolset", None)
    return tools if _is_toolset(tools) else None


def _is_toolset(found: object) -> TypeGuard[Toolset[Any]]:
    return isinstance(found, Toolset)


def run_audit(target: str, *, strict: bool, as_json: bool) -> int:
    """Audit the agents that a setup function registers, and print what was found; returns the exit code.

    Raises:
        CommandFailed: the setup function cannot be used.
    """
    found = asyncio.run(_audit(target, load_setup(target)))
    if as_json:
        give(json.dumps(asdict(found)))
    else:
        show(found, Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE))
    return 1 if found.failures or (strict and found.undeclared) else 0


async def _audit(target: str, setup: Setup) -> Audit:
    # AutoGen logs each agent that could not be made, with a traceback; the report says the same in one line.
    logging.getLogger("autogen_core").setLevel(logging.CRITICAL)
    runtime = Stage()
    try:
        await set_up(target, setup, runtime)
        found = await runtime.audit()
    finally:
        await runtime.close()
    if not found.tools and not found.failures:
        raise CommandFailed(f"{target} registered no agent that has tools")
    return found


def show(found: Audit, console: Console) -> None:
    """Print a table of the tools, what failed, and a sum."""
    tools = table(_TOOLS, list(_rows(found.tools)))
    if tools is not None:
        console.print(tools)
    for agent_type, reason in found.failures.items():
        console.print(Text(f"agents of type {agent_type} cannot be looked at: {reason}", style="red"), soft_wrap=True)
    if found.undeclared:
        text = f"{found.undeclared} of {len(found.tools)} tools do not declare their effects: never run again by us"
        console.print(Text(text, style="bold red"))
    elif found.tools:
        console.print(Text(f"all {len(found.tools)} tools declare their effects", style="bold"))


def _rows(tools: Iterable[AuditedTool]) -> Iterable[Row]:
    for each in tools:
        yield [
            each.agent_type,
            each.tool,
            each.effects or Text("-", style="red"),
            each.strategy if each.strategy != Strategy.UNDECLARED else Text(each.strategy, style="red"),
            each.approval,
            "-" if each.timeout is None else f"{each.timeout:g} s",
            _overlaps(each),
        ]


def _overlaps(each: AuditedTool) -> str:
    said = [f"reads {name}" for name in each.reads] + [f"writes {name}" for name in each.writes]
    return ", ".join(said) or ("yes" if each.may_overlap else "no")


def _audited(agent_type: str, tool: TypedTool[Any]) -> AuditedTool:
    declares = tool.declares
    return AuditedTool(
        agent_type,
        tool.name,
        declares.effects,
        str(declares.strategy),
        declares.approval,
        declares.timeout,
        declares.parallel_safe or bool(declares.reads or declares.writes),
        sorted(declares.reads),
        sorted(declares.writes),
    )
