"""`stagebell run`: what runs did, told from a shell, also when no process of the application is there."""

from __future__ import annotations

import asyncio
import json

import pytest
from autogen_core import AgentId

from stagebell import Publisher, RedisRuntime
from stagebell.agents.archive import stored_conversation, stored_runs
from stagebell.agents.runs import Runs
from stagebell.errors import UnknownRun
from stagebell.tools.tool import tool
from tests.runtime.ops.commands import Shell
from tests.support.agents import Ask, Counting, host
from tests.support.loops import host_model, says, wants

pytestmark = pytest.mark.integration


def log_in(user: str, password: str) -> str:
    """Log in."""
    return f"welcome {user}; your token is sk-abcdefghijklmnop"


async def command(shell: Shell, *arguments: str) -> tuple[int, str, str]:
    """What it printed."""
    done = await asyncio.to_thread(shell.run, "run", *arguments)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


async def two_runs(url: str, namespace: str) -> tuple[str, str]:
    """One run that ended, and one that waits for a person; no process of the application is left."""
    runtime = RedisRuntime(url, namespace=namespace)
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
    return first.run_id, second.run_id


async def test_a_run_is_shown_round_by_round_without_secrets(shell: Shell, locked_url: str, namespace: str) -> None:
    ended, _ = await two_runs(locked_url, namespace)
    shown, as_json = await asyncio.gather(
        command(shell, "show", ended),
        command(shell, "show", ended, "--json"),
    )
    assert shown[0] == 0
    assert shown[1].splitlines()[0] == f"run {ended}: succeeded"
    assert "model calls log_in: [call" in shown[1]
    assert "succeeded (final_output): done" in shown[1]
    for text in (shown[1], as_json[1]):
        assert "hunter2" not in text
        assert "sk-abc" not in text
        assert "welcome ada" in text
    entries = json.loads(as_json[1])["entries"]
    assert [entry["kind"] for entry in entries] == ["asked", "decided", "returned", "decided", "finished"]
    assert {name: entries[-1][name] for name in ("run_id", "status", "reason", "step", "last_tool")} == {
        "run_id": ended,
        "status": "succeeded",
        "reason": "final_output",
        "step": 2,
        "last_tool": "log_in",
    }


async def test_a_run_is_explained(shell: Shell, locked_url: str, namespace: str) -> None:
    ended, waits = await two_runs(locked_url, namespace)
    explained, as_json = await asyncio.gather(
        command(shell, "explain", ended), command(shell, "explain", waits, "--json")
    )
    told = explained[1].splitlines()
    assert [line for line in told if line[0] != " "][1:] == ["model output", "schema", "state", "side effects", "end"]
    assert any("log_in" in line and line.endswith("it succeeded") for line in told)
    (call,) = json.loads(as_json[1])["calls"]
    assert (call["tool"], call["verdict"], call["attempts"]) == ("pay", "open", 0)


async def test_runs_are_listed_and_others_are_not_known(shell: Shell, locked_url: str, namespace: str) -> None:
    ended, waits = await two_runs(locked_url, namespace)
    listed, table, no_type, no_run = await asyncio.gather(
        command(shell, "list", "assistant", "--json"),
        command(shell, "list", "assistant"),
        command(shell, "list", "nosuch"),
        command(shell, "show", "assistant/c#nothing"),
    )
    found = json.loads(listed[1])["runs"]
    assert [(each["run_id"], each["status"], each["steps"]) for each in found] == [
        (waits, "waiting", 1),
        (ended, "succeeded", 2),
    ]
    assert found[0]["waits_for"][0].startswith("approval call")
    assert ended in table[1]
    assert "waiting" in table[1]
    assert (no_type[0], "'nosuch'" in no_type[2], "known are assistant" in no_type[2]) == (1, True, True)
    assert (no_run[0], "no run 'assistant/c#nothing' is known" in no_run[2]) == (1, True)


async def test_a_list_without_runs_says_which_agents_make_some(shell: Shell, locked_url: str, namespace: str) -> None:
    async with RedisRuntime(locked_url, namespace=namespace) as runtime:
        await host(runtime, "silent")
        await Counting.register(runtime, "counts", Counting)
        await runtime.send_message(Ask(text="x"), AgentId("counts", "a"))
    silent, counts = await asyncio.gather(command(shell, "list", "silent"), command(shell, "list", "counts"))
    assert "nothing is stored of agent type 'silent': agents that make runs store them (ModelAgent" in silent[2]
    assert "1 of the stored states of agent type 'counts' hold no runs: agents that make runs" in counts[2]


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
    assert await stored_runs(publisher, "nobody") == ([], 0)
