"""The way of a process to its server, opened again when it breaks, in whatever moment that is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import stagebell.runtime.redis.link as link_module
from stagebell.errors import ServerUnavailable
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.rights import CLIENT_COMMANDS, check_rights
from stagebell.runtime.redis.scripts import Scripts
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def test_a_connection_that_ends_before_it_is_used_is_opened_again(
    server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last answer and its end may come in one piece; then nobody listens yet to hear of the end."""
    ends: list[bool] = [False, True, True]

    async def check(scripts: Scripts, commands: tuple[str, ...]) -> None:
        await check_rights(scripts, commands)
        if ends and ends.pop(0):
            scripts._connection.connection_lost(None)

    monkeypatch.setattr(link_module, "check_rights", check)
    link = Link(server.url, namespace, "a-test", CLIENT_COMMANDS)
    await link.open()
    client: Any = server.client()
    (mine,) = [each for each in client.client_list() if each["name"] == "a-test"]
    client.client_kill_filter(_id=mine["id"])
    asked = link.submit(lambda scripts: scripts.registry_version())
    assert await asyncio.wait_for(asked, 10) is None
    assert ends == []
    await eventually(lambda: link.connected, 5)
    await link.close()
    client.close()


async def test_an_opening_that_ends_at_once_is_an_error(
    server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(scripts: Scripts, commands: tuple[str, ...]) -> None:
        scripts._connection.connection_lost(None)

    monkeypatch.setattr(link_module, "check_rights", check)
    with pytest.raises(ServerUnavailable, match="closed the connection"):
        await Link(server.url, namespace, "a-test", CLIENT_COMMANDS).open()
