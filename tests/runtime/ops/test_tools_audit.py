"""`stagebell tools audit`: what the tools of a program declare."""

from __future__ import annotations

import json

import pytest

from tests.runtime.ops.commands import Shell

pytestmark = pytest.mark.integration

MODULE = """
from autogen_core.tool_agent import ToolAgent as Plain
from autogen_core.tools import FunctionTool, StaticWorkbench

from stagebell import ModelAgent, ToolAgent, tool
from stagebell.testing import ScriptedModel
from tests.support.agents import Doing

def act(what: str) -> str:
    raise RuntimeError("no tool is called by an audit")

look = tool(act, name="look", effects="none", parallel_safe=True)
pay = tool(act, name="pay", effects="side", requires_approval=True, timeout=2.5, writes={"till"})

async def declared(runtime) -> None:
    await ToolAgent.register(runtime, "tills", lambda: ToolAgent("Till.", [look, pay]))
    await Doing.register(runtime, "doing", lambda: Doing(None))

async def undeclared(runtime) -> None:
    await declared(runtime)
    theirs = FunctionTool(act, "Acts.")
    await ToolAgent.register(runtime, "benches", lambda: ToolAgent("Bench.", [StaticWorkbench([theirs])]))
    await Plain.register(runtime, "plain", lambda: Plain("Plain.", [theirs]))
    await ModelAgent.register(runtime, "clerk", lambda: ModelAgent(ScriptedModel([]), tools=[look, theirs]))

async def broken(runtime) -> None:
    await ToolAgent.register(runtime, "twins", lambda: ToolAgent("Twins.", [look, look]))

async def nothing(runtime) -> None:
    await Doing.register(runtime, "doing", lambda: Doing(None))
"""


@pytest.fixture
def desk(shell: Shell) -> Shell:
    """A shell with agents that have tools."""
    (shell.folder / "desk.py").write_text(MODULE)
    return shell


def test_declared_tools_are_listed(desk: Shell) -> None:
    done = desk.run("tools", "audit", "desk:declared", "--strict")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "tills look none pure never - yes" in lines
    assert "tills pay side once always 2.5 s writes till" in lines
    assert lines[-1] == "all 2 tools declare their effects"


def test_undeclared_tools_are_named_and_fail_a_strict_audit(desk: Shell) -> None:
    done = desk.run("tools", "audit", "desk:undeclared", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(each["agent_type"], each["tool"], each["strategy"]) for each in found["tools"]] == [
        ("tills", "look", "pure"),
        ("tills", "pay", "once"),
        ("benches", "act", "undeclared"),
        ("plain", "act", "undeclared"),
        ("clerk", "look", "pure"),
        ("clerk", "act", "undeclared"),
    ]
    strict = desk.run("tools", "audit", "desk:undeclared", "--strict")
    assert strict.returncode == 1
    assert "3 of 6 tools do not declare their effects" in strict.stdout


def test_an_agent_that_cannot_be_made_is_told(desk: Shell) -> None:
    done = desk.run("tools", "audit", "desk:broken")
    assert done.returncode == 1
    assert "twins cannot be looked at: ToolRefused: tool 'look' is refused" in done.stdout
    assert "declare" not in done.stdout


def test_a_program_without_tools(desk: Shell) -> None:
    done = desk.run("tools", "audit", "desk:nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == "error: desk:nothing registered no agent that has tools"
