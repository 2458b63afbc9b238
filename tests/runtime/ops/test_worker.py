"""One worker process: it says that it is ready, answers, and stops when told to."""

from __future__ import annotations

import asyncio
import signal

import pytest
from autogen_core import AgentId

from stagebell import Publisher
from stagebell.errors import MessageTooLarge
from stagebell.runtime.redis.overview import Overview
from tests.runtime.ops.commands import Shell
from tests.support.agents import Ask
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

CLERK = AgentId("clerk", "one")


async def test_it_says_when_it_is_ready_and_answers(shell: Shell, publisher: Publisher) -> None:
    worker = shell.start("worker", "shop:setup")
    said = await worker.ready()
    assert said["pid"] == str(worker.pid)
    assert said["types"] == "clerk"
    assert said["worker"]
    assert await publisher.call(Ask(text="tea"), CLERK, timeout=10) == f"{worker.pid} tea"


async def test_settings_reach_its_runtime(shell: Shell, locked_url: str, namespace: str) -> None:
    shell.environment["STAGEBELL_PARTITIONS"] = "5"
    shell.environment["STAGEBELL_MAX_MESSAGE_BYTES"] = "100"
    given = ("--partitions", "3", "--when-full", "raise", "--cancel-when-caller-gone", "--max-call-depth", "4")
    worker = shell.start("worker", "shop:setup", *given)
    await worker.ready()
    overview = await Overview.read(locked_url, namespace)
    assert len(overview.types[0].partitions) == 3
    async with Publisher(locked_url, namespace=namespace) as client:
        with pytest.raises(MessageTooLarge):
            await client.call(Ask(text="tea" * 50), CLERK, timeout=10)  # its answer is too long for that worker
    assert await worker.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_in_order(
    shell: Shell, publisher: Publisher, locked_url: str, namespace: str, number: signal.Signals
) -> None:
    worker = shell.start("worker", "shop:setup", "--lease", "60")
    await worker.ready()
    await publisher.call(Ask(), CLERK, timeout=10)
    assert await worker.stop(number) == 0
    assert worker.errors == "stagebell: stopping; running handlers get 5 s (a second signal ends them at once)\n"
    after = await Overview.read(locked_url, namespace)
    assert after.workers == []
    assert [part.owner for part in after.types[0].partitions] == [""] * 16


async def test_another_worker_takes_over_at_once(shell: Shell, publisher: Publisher) -> None:
    first = shell.start("worker", "shop:setup")
    await first.ready()
    assert await publisher.call(Ask(text="a"), CLERK, timeout=10) == f"{first.pid} a"
    second = shell.start("worker", "shop:setup")
    await second.ready()
    assert await first.stop() == 0
    assert await publisher.call(Ask(text="b"), CLERK, timeout=5) == f"{second.pid} b"


async def test_a_running_handler_may_end(shell: Shell, publisher: Publisher) -> None:
    worker = shell.start("worker", "shop:setup")
    await worker.ready()
    call = asyncio.create_task(publisher.call(Ask(text="wait"), CLERK, timeout=20))
    await eventually((shell.folder / "waiting").exists, within=10)
    worker.process.send_signal(signal.SIGTERM)
    (shell.folder / "go").touch()
    assert await call == f"{worker.pid} wait"
    assert await worker.ended() == 0


async def test_a_handler_that_does_not_end_is_left_to_another_worker(shell: Shell, publisher: Publisher) -> None:
    worker = shell.start("worker", "shop:setup", "--stop-grace", "0.2")
    await worker.ready()
    call = asyncio.create_task(publisher.call(Ask(text="wait"), CLERK, timeout=20))
    await eventually((shell.folder / "waiting").exists, within=10)
    assert await worker.stop() == 0
    (shell.folder / "go").touch()
    other = shell.start("worker", "shop:setup")
    assert await call == f"{other.pid} wait"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once(shell: Shell, publisher: Publisher, number: signal.Signals) -> None:
    worker = shell.start("worker", "shop:setup", "--stop-grace", "60")
    await worker.ready()
    call = asyncio.create_task(publisher.call(Ask(text="wait"), CLERK, timeout=20))
    await eventually((shell.folder / "waiting").exists, within=10)
    worker.process.send_signal(number)
    await eventually(lambda: "stagebell: stopping" in worker.errors)
    worker.process.send_signal(number)
    assert await worker.ended(within=3) == 128 + number
    call.cancel()


async def test_a_signal_before_it_is_ready(shell: Shell) -> None:
    (shell.folder / "slow.py").write_text(
        "import asyncio\nfrom pathlib import Path\n"
        "async def setup(runtime):\n    Path('here').touch()\n    await asyncio.sleep(60)\n"
    )
    worker = shell.start("worker", "slow:setup")
    await eventually((shell.folder / "here").exists, within=20)
    assert await worker.stop() == 0
    assert worker.out == ""


async def test_the_embedded_server_when_there_is_no_url(shell: Shell) -> None:
    shell.environment["STAGEBELL_REDIS"] = ""
    worker = shell.start("worker", "shop:setup", "--folder", "data")
    await worker.ready()
    done = shell.run("ps", "--folder", "data")
    assert "clerk" in done.stdout
    assert "the embedded server of data" in done.stdout
    assert await worker.stop() == 0
