"""`stagebell run`: what runs did, told from a shell, also when no process of the application is there."""

from __future__ import annotations

import asyncio
import json

import pytest

from stagebell import Publisher, RedisRuntime
from stagebell.agents.archive import stored_conversation, stored_runs
from stagebell.agents.runs import Runs
from stagebell.errors import UnknownRun
from stagebell.tools.tool import tool
from tests.runtime.ops.commands import Shell
from tests.support.loops import host_model, says, wants

pytestmark = pytest.mark.integration


def log_in(user: str, password: str) -> str:
    """Log in."""
    return f"welcome {user}; your token is sk-abcdefghijklmnop"


async def command(shell: Shell, *arguments: str) -> tuple[int, str, str]:
    """What it printed."""
    done = await asyncio.to_thread(shell.run, "run", *arguments)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


async def test_a_run_is_told_when_all_processes_are_gone(
    shell: Shell, publisher: Publisher, locked_url: str, namespace: str
) -> None:
    """Round by round, with no secret in it; a run that waits for a person is among them."""
    runtime = RedisRuntime(locked_url, namespace=namespace)
    model = says(wants("log_in", user="ada", password="hunter2hunter2"), "done", wants("pay"))
    pay = tool(lambda: "paid", name="pay", description="Pay.", effects="side", requires_approval=True)
    await host_model(runtime, model, tools=[log_in, pay])
    await runtime.start()
    runs = Runs(runtime)
    first = await runs.start("assistant", "log in", conversation="c")
    await first.result()
    second = await runs.start("assistant", "pay", conversation="c")
    async for happened in second.events():
        if "waits_for" in str(happened.entry):
            break
    await runtime.close()

    shown, as_json, listed, unknown = await asyncio.gather(
        command(shell, "show", first.run_id),
        command(shell, "show", first.run_id, "--json"),
        command(shell, "list", "assistant", "--json"),
        command(shell, "show", "assistant/c#nothing"),
    )
    explained, explained_json = await asyncio.gather(
        command(shell, "explain", first.run_id), command(shell, "explain", second.run_id, "--json")
    )
    assert shown[0] == 0
    assert shown[1].splitlines()[0] == f"run {first.run_id}: succeeded"
    assert "model calls log_in: [call" in shown[1]
    assert "succeeded (final_output): done" in shown[1]
    for text in (shown[1], as_json[1]):
        assert "hunter2" not in text
        assert "sk-abc" not in text
        assert "welcome ada" in text
    told = explained[1].splitlines()
    assert [line for line in told if line[0] != " "][1:] == ["model output", "schema", "state", "side effects", "end"]
    assert any("log_in" in line and line.endswith("it succeeded") for line in told)
    (call,) = json.loads(explained_json[1])["calls"]
    assert (call["tool"], call["verdict"], call["attempts"]) == ("pay", "open", 0)
    last = json.loads(as_json[1])["entries"][-1]
    assert {name: last[name] for name in ("run_id", "status", "reason", "step", "last_tool")} == {
        "run_id": first.run_id,
        "status": "succeeded",
        "reason": "final_output",
        "step": 2,
        "last_tool": "log_in",
    }
    kinds = [entry["kind"] for entry in json.loads(as_json[1])["entries"]]
    assert kinds == ["asked", "decided", "returned", "decided", "finished"]
    found = json.loads(listed[1])["runs"]
    assert [(each["run_id"], each["status"], each["steps"]) for each in found] == [
        (second.run_id, "waiting", 1),
        (first.run_id, "succeeded", 2),
    ]
    assert found[0]["waits_for"][0].startswith("approval call")
    assert (unknown[0], "no run 'assistant/c#nothing' is known" in unknown[2]) == (1, True)

    table = await command(shell, "list", "assistant")
    assert first.run_id in table[1]
    assert "waiting" in table[1]
    code, _, problem = await command(shell, "list", "nosuch")
    assert (code, "'nosuch'" in problem, "known are assistant" in problem) == (1, True, True)


async def test_what_cannot_be_is_told(shell: Shell) -> None:
    wrong, empty, nonsense = await asyncio.gather(
        command(shell, "list", "a b"), command(shell, "list", "nosuch"), command(shell, "show", "x")
    )
    assert (wrong[0], "'a b' is no agent type" in wrong[2]) == (2, True)
    assert (empty[0], "no worker has ever hosted agents of type 'nosuch'" in empty[2]) == (1, True)
    assert (nonsense[0], "no run 'x' is known. The id of a run is" in nonsense[2]) == (1, True)


async def test_what_is_not_there_is_an_error(publisher: Publisher) -> None:
    """Of no type, of no conversation; a list is just empty."""
    for run_id in ("nobody/c#1", "nonsense", "a/b"):
        with pytest.raises(UnknownRun):
            await stored_conversation(publisher, run_id)
    assert await stored_runs(publisher, "nobody") == []
