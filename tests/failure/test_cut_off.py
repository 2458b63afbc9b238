"""A worker whose turns cannot reach the server does not keep its agents by its heartbeats."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core import AgentId

from stagebell import Publisher
from tests.failure.agents import Measure, Measured
from tests.failure.processes import Workers
from tests.failure.view import View
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

LEASE = 0.6


async def test_a_heartbeat_says_that_turns_can_be_committed(namespace: str, tmp_path: Any, server: Server) -> None:
    """I23: the lease thread still reaches the server, the connection of the turns does not: others take over."""
    with Server(server.kind) as own:
        workers, client = Workers(own.url, namespace, tmp_path), own.client()
        view = View(client, namespace)
        try:
            [cut_off] = await workers.start("audit", lease=LEASE)
            await eventually(lambda: len(view.owners()) >= 48, within=10)
            name = view.worker_of(cut_off.pid)
            heir = (await workers.start("audit", lease=LEASE))[0]
            async with Publisher(own.url, namespace=namespace) as publisher:
                publisher.register(Measured)
                client.config_set("maxclients", 1)  # who is connected stays, nobody can connect anew
                for line in client.client_list():
                    if line["name"] == f"stagebell-{name}":
                        client.client_kill_filter(_id=line["id"])
                await eventually(lambda: not view.owned_by(name), within=LEASE * 2 + 5)
                for number in range(1, 9):
                    reply = await publisher.call(
                        Measure(sender="client", number=number), AgentId("analyser", f"a{number}"), timeout=10
                    )
                    assert reply.pid == heir.pid
            assert "cannot reach the server" in cut_off.errors(200)
        finally:
            client.config_set("maxclients", 1000)
            workers.reap()
            print(workers.report())
            client.close()
