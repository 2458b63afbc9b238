"""Something breaks between or in the processes: each of these ends well, or in a named error."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any

import pytest
from autogen_core import AgentId, TopicId

from stagebell import Publisher, RedisRuntime
from stagebell.errors import DeadLettered, RuntimeNotRunning, Undeliverable
from stagebell.runtime.redis.embedded import EmbeddedServer
from tests.failure.agents import Count, File, Measured
from tests.failure.history import Load, check
from tests.failure.processes import Workers
from tests.failure.troubles import ALARMS, EVENTS, Empty, Trouble
from tests.failure.view import View
from tests.support.servers import Kind, Server, available_kinds
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

LEASE = 0.6


def publisher_for(server: Server, workers: Workers, **options: Any) -> Publisher:
    publisher = Publisher(server.url, namespace=workers.namespace, **options)
    publisher.register(Measured, Count)
    return publisher


def slow_call(publisher: Publisher, key: str, number: int = 1, pause: float = 0.0) -> Any:
    return publisher.call(File(sender="client", number=number, pause=pause), AgentId("slow", key), timeout=20)


# -- workers die


async def test_twenty_calls_in_flight_are_answered_by_the_worker_that_comes_next(
    server: Server, workers: Workers, view: View
) -> None:
    [victim] = await workers.start("troubles", lease=LEASE)
    async with publisher_for(server, workers) as publisher:
        calls = [asyncio.create_task(slow_call(publisher, f"s{i}", pause=0.5)) for i in range(20)]
        await eventually(lambda: view.begun() == 20)
        victim.kill()
        [heir] = await workers.start("troubles", lease=LEASE)
        replies = await asyncio.gather(*calls)
    assert [(reply.number, reply.pid) for reply in replies] == [(1, heir.pid)] * 20
    assert [view.state("slow", f"s{i}")["heard"] for i in range(20)] == [{"client": [1]}] * 20


async def test_twenty_events_in_handlers_take_effect_once(server: Server, workers: Workers, view: View) -> None:
    [victim] = await workers.start("troubles", lease=LEASE)
    async with publisher_for(server, workers) as publisher:
        for i in range(20):
            await publisher.publish(File(sender="client", number=1, pause=0.5), TopicId(EVENTS, f"s{i}"))
        await eventually(lambda: view.begun() == 20)
        victim.kill()
        await workers.start("troubles", lease=LEASE)
        await eventually(lambda: view.backlog() == 0, within=10)
    assert [view.state("slow", f"s{i}")["heard"] for i in range(20)] == [{"client": [1]}] * 20
    assert view.state("tally", "slow")["heard"] == {f"s{i}": [1] for i in range(20)}
    assert not view.left_behind()


async def test_twenty_events_published_while_no_worker_is_up_are_delivered_when_one_comes(
    server: Server, workers: Workers, view: View
) -> None:
    [first] = await workers.start("troubles", lease=LEASE)
    first.kill()
    async with publisher_for(server, workers) as publisher:
        for i in range(20):
            await publisher.publish(File(sender="client", number=1), TopicId(EVENTS, f"s{i}"))
    assert view.backlog() == 20
    await workers.start("troubles", lease=LEASE)
    await eventually(lambda: view.backlog() == 0, within=5)
    assert view.state("tally", "slow")["heard"] == {f"s{i}": [1] for i in range(20)}


async def test_a_call_ends_when_the_last_worker_of_its_type_is_gone(
    server: Server, workers: Workers, view: View
) -> None:
    [victim] = await workers.start("troubles", lease=LEASE)
    async with publisher_for(server, workers, undeliverable_after=1.0) as publisher:
        call = asyncio.create_task(slow_call(publisher, "s1", pause=5.0))
        await eventually(lambda: view.begun() == 1)
        victim.kill()
        with pytest.raises(Undeliverable, match="slow"):
            await asyncio.wait_for(call, 10)
        with pytest.raises(Undeliverable, match="no live worker"):
            await slow_call(publisher, "s2")
    assert view.backlog() == 0
    assert not view.left_behind()


async def keep_a_worker_up(workers: Workers, done: asyncio.Event) -> int:
    """Until `done`; returns how many have died."""
    deaths = 0
    while not done.is_set():
        worker = workers.spawn("troubles", lease=0.6, partitions=1)
        await eventually(lambda worker=worker: not worker.alive or done.is_set(), within=60)
        deaths += not worker.alive
    return deaths


async def test_a_message_that_kills_its_worker_is_set_aside_and_harms_no_neighbour(
    server: Server, workers: Workers, view: View
) -> None:
    """I15: four attempts, one dead letter, one error to the caller."""
    done = asyncio.Event()
    async with publisher_for(server, workers, undeliverable_after=60.0) as publisher:  # workers may start slowly
        keeper = asyncio.create_task(keep_a_worker_up(workers, done))
        await eventually(lambda: len(view.owners()) >= 5, within=20)
        poison = asyncio.create_task(publisher.call(Trouble(kind="exit"), AgentId("troubled", "poison")))
        neighbours = [
            asyncio.create_task(publisher.call(Trouble(kind="none", number=i), AgentId("troubled", f"n{i}")))
            for i in range(10)
        ]
        slow = [asyncio.create_task(slow_call(publisher, f"s{i}", pause=0.4)) for i in range(3)]
        after = asyncio.create_task(publisher.call(Trouble(kind="none"), AgentId("troubled", "poison")))
        with pytest.raises(DeadLettered, match="died"):
            await asyncio.wait_for(poison, 60)
        assert [reply.count for reply in await asyncio.wait_for(asyncio.gather(*neighbours), 40)] == [1] * 10
        assert [reply.noted for reply in await asyncio.wait_for(asyncio.gather(*slow), 40)] == [1] * 3
        assert (await asyncio.wait_for(after, 40)).count == 1
        await eventually(lambda: view.backlog() == 0, within=20)
        done.set()
        assert 4 <= await keeper <= 5  # it dies in its first step, so nobody could count the first time
    assert [letter["a"] for letter in view.dead_letters()] == ["troubled/poison"]
    heard = view.state("tally", "trouble")["heard"]
    assert heard == {"poison": [0], **{f"n{i}": [i] for i in range(10)}}
    await eventually(lambda: not view.left_behind(), within=5)


@pytest.mark.parametrize("server", available_kinds()[:1], indirect=True)
async def test_a_publish_that_kills_its_worker_four_times_is_one_dead_letter(
    server: Server, workers: Workers, view: View
) -> None:
    done = asyncio.Event()
    async with publisher_for(server, workers) as publisher:
        keeper = asyncio.create_task(keep_a_worker_up(workers, done))
        await eventually(lambda: len(view.owners()) >= 5, within=20)
        await publisher.publish(Trouble(kind="exit later", number=1), TopicId(ALARMS, "poison"))
        for number in range(2, 6):
            await publisher.publish(Trouble(kind="none", number=number), TopicId(ALARMS, "poison"))
            await publisher.publish(Trouble(kind="none", number=number), TopicId(ALARMS, f"n{number}"))
        await eventually(lambda: view.dead_letters(), within=60)
        await eventually(lambda: view.backlog() == 0, within=20)
        done.set()
        assert await keeper == 4
    (letter,) = view.dead_letters()
    assert (letter["a"], letter["attempts"]) == ("troubled/poison", "4")
    assert letter["reason"] == "crashed: 4 times its worker died, or lost its lease, while it ran"
    assert view.state("troubled", "poison")["heard"] == {"none": [2, 3, 4, 5]}
    assert [view.state("troubled", f"n{number}")["heard"] for number in range(2, 6)] == [
        {"none": [number]} for number in range(2, 6)
    ]
    await eventually(lambda: not view.left_behind(), within=5)


# -- the server restarts


@pytest.mark.parametrize("kill", [False, True], ids=["in order", "killed"])
async def test_calls_and_publishes_go_on_over_a_restart_of_the_server(
    server: Server, namespace: str, tmp_path: Path, kill: bool
) -> None:
    kind: Kind = server.kind
    # With "everysec" a server that is killed may have put off writing for up to two seconds, when its disk is slow.
    fsync = "always" if kill else "everysec"
    with Server(kind, args=("--appendonly", "yes", "--appendfsync", fsync)) as own:
        workers = Workers(own.url, namespace, tmp_path)
        view = View(own.client(), namespace)
        try:
            await workers.start("audit", 2, lease=1.0)
            async with publisher_for(own, workers) as publisher:
                load = Load(publisher, seed=31, agents=60)
                run = asyncio.create_task(load.run())
                await eventually(lambda: load.sent > 0.4 * load.total or run.done(), within=20)
                await asyncio.to_thread(own.restart, kill=kill)
                await run
                view = View(own.client(), namespace)
                await eventually(lambda: view.backlog() == 0, within=10)
                await eventually(lambda: not view.left_behind(), within=2)
            check(view, [load])
        finally:
            workers.reap()
            print(workers.report())
            view.client.close()


async def test_the_embedded_server_keeps_its_data_when_its_last_user_is_killed(tmp_path: Path, namespace: str) -> None:
    folder = tmp_path / "project"
    workers = Workers("-", namespace, tmp_path)
    try:
        [first] = await workers.start("troubles", folder=folder, lease=LEASE)
        async with Publisher(namespace=namespace, folder=folder) as publisher:
            publisher.register(Count)
            reply = await publisher.call(Trouble(kind="none", number=7), AgentId("troubled", "t"), timeout=10)
            assert reply.count == 1
        first.kill()
        await workers.start("troubles", folder=folder, lease=LEASE)
        async with Publisher(namespace=namespace, folder=folder) as publisher:
            publisher.register(Count)
            reply = await publisher.call(Trouble(kind="none", number=8), AgentId("troubled", "t"), timeout=10)
            assert reply.count == 2
    finally:
        workers.reap()
        print(workers.report())
    server = await EmbeddedServer.acquire(folder)
    server.release()


# -- several clients, several workers


async def test_clients_that_call_one_worker_at_once_get_their_own_replies(
    server: Server, workers: Workers, view: View
) -> None:
    await workers.start("troubles")
    async with publisher_for(server, workers) as one, publisher_for(server, workers) as two:
        calls = [slow_call(one, f"s{i % 3}", number=i, pause=0.001) for i in range(50)]
        calls += [slow_call(two, f"s{i % 3}", number=1000 + i, pause=0.001) for i in range(50)]
        replies = await asyncio.gather(*calls)
    assert [reply.number for reply in replies] == [*range(50), *range(1000, 1050)]


async def test_a_second_worker_of_a_type_takes_its_share(server: Server, workers: Workers, view: View) -> None:
    running = await workers.start("troubles", 2, lease=LEASE, partitions=4)
    names = {view.worker_of(worker.pid) for worker in running}

    def shared() -> bool:
        owners = [owner for key, owner in view.owners().items() if ":slow:" in key]
        return set(owners) == names and {owners.count(name) for name in names} == {2}

    await eventually(shared, within=10)
    async with publisher_for(server, workers) as publisher:
        replies = await asyncio.gather(*(slow_call(publisher, f"s{i}") for i in range(40)))
    assert {reply.pid for reply in replies} == {worker.pid for worker in running}


async def test_a_call_to_a_type_that_nobody_knows_ends_in_a_named_error(
    server: Server, workers: Workers, view: View
) -> None:
    async with publisher_for(server, workers, undeliverable_after=0.5) as publisher:
        with pytest.raises(Undeliverable, match="nobody"):
            await publisher.call(Trouble(kind="none"), AgentId("nobody", "n"), timeout=10)
    assert view.backlog() == 0


# -- errors of handlers, and states


async def test_an_exception_arrives_as_what_it_is(server: Server, workers: Workers) -> None:
    await workers.start("troubles")
    async with publisher_for(server, workers) as publisher:
        with pytest.raises(ValueError, match=r"^number 3 is no good$") as found:
            await publisher.call(Trouble(kind="ValueError", number=3), AgentId("troubled", "t"), timeout=10)
        assert type(found.value) is ValueError
        assert "on_trouble" in found.value.remote_traceback
        assert "on_trouble" in "".join(traceback.format_exception(found.value))
        with pytest.raises(Empty) as empty:
            await publisher.call(Trouble(kind="empty"), AgentId("troubled", "t"), timeout=10)
        assert str(empty.value) == ""


async def test_states_of_all_workers_can_be_saved_from_anywhere(server: Server, workers: Workers) -> None:
    await workers.start("troubles", 2)
    async with publisher_for(server, workers) as publisher:
        await asyncio.gather(*(slow_call(publisher, f"s{i}", number=i) for i in range(20)))
    async with RedisRuntime(server.url, namespace=workers.namespace) as runtime:
        saved = await runtime.save_state()
    assert {key: state["heard"] for key, state in saved.items() if key.startswith("slow/")} == {
        f"slow/s{i}": {"client": [i]} for i in range(20)
    }


async def test_a_runtime_that_was_stopped_says_so(server: Server, workers: Workers, view: View) -> None:
    await workers.start("troubles")
    runtime = RedisRuntime(server.url, namespace=workers.namespace)
    runtime.add_message_serializer([])
    await runtime.start()
    await runtime.stop()
    with pytest.raises(RuntimeNotRunning, match="stopped"):
        await runtime.send_message(Trouble(kind="none"), AgentId("troubled", "t"))
    async with publisher_for(server, workers) as publisher:
        call = asyncio.create_task(slow_call(publisher, "s1", pause=5))
        await eventually(lambda: view.begun() == 1)
    with pytest.raises(RuntimeNotRunning, match="closed"):
        await asyncio.wait_for(call, 5)


# -- types that are bound to a process


async def test_calls_to_a_process_that_died_end_and_a_stand_by_takes_over(
    server: Server, workers: Workers, view: View
) -> None:
    [holder] = await workers.start("bound_callee,troubles", lease=LEASE)
    stand_by, *_ = await workers.start("bound_callee", lease=LEASE)
    await workers.start("troubles", lease=LEASE)
    key = AgentId("counter", "default")
    async with publisher_for(server, workers) as publisher:
        reply = await publisher.call(File(sender="client", number=1), key, timeout=10)
        assert reply.pid == holder.pid
        call = asyncio.create_task(publisher.call(File(sender="client", number=2, pause=9), key, timeout=15))
        await eventually(lambda: view.backlog() > 0)
        holder.kill()
        await publisher.publish(File(sender="client", number=3), TopicId("counter", "default"))
        with pytest.raises(Undeliverable, match="ended"):
            await call

        async def answers() -> bool:
            try:
                again = await publisher.call(File(sender="client", number=4), key, timeout=10)
            except Undeliverable:  # sent before the dead process was noticed
                return False
            return bool(again.pid == stand_by.pid)

        await eventually(answers, within=10)
        before = view.state("tally", "slow").get("heard", {}).get("default", [])
        assert before

        async def hears() -> bool:
            await publisher.publish(File(sender="client", number=5), TopicId("counter", "default"))
            return len(view.state("tally", "slow")["heard"]["default"]) > len(before)

        await eventually(hears, within=5)
    assert {letter["reason"] for letter in view.dead_letters()}
    assert not view.against_the_list()


async def test_subscriptions_of_a_process_that_died_are_gone(server: Server, workers: Workers, view: View) -> None:
    [holder] = await workers.start("bound", lease=LEASE)
    await workers.start("troubles", lease=LEASE)

    def described() -> list[bytes]:
        fields = view.client.hgetall(f"sb:{{{view.namespace}}}:reg")
        return [name for name in fields if name.startswith((b"t:desk", b"s:type:desk"))]

    assert len(described()) == 2
    async with publisher_for(server, workers) as publisher:
        holder.kill()
        await eventually(lambda: not described(), within=LEASE + 3)
        await publisher.publish(File(sender="client", number=1), TopicId("desk", "any"))
    assert view.backlog() == 0
