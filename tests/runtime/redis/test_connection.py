"""The connection: order, errors in the middle, and what becomes of commands when the server is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from stagebell.errors import ServerRefused, ServerUnavailable
from stagebell.runtime.redis.address import Address
from stagebell.runtime.redis.connection import Connection
from tests.support.servers import Server, available_kinds, free_port

pytestmark = pytest.mark.integration
SECRET = "s3cr3t/ü"
SECRET_QUOTED = "s3cr3t%2F%C3%BC"


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    connection = await Connection.open(server.url, name="pipelines")
    yield connection
    connection.close()


@pytest.fixture(params=available_kinds())
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that a test may stop."""
    with Server(request.param) as server:
        yield server


async def outcomes(futures: list[asyncio.Future[Any]]) -> list[Any]:
    async with asyncio.timeout(10):
        return await asyncio.gather(*futures, return_exceptions=True)


async def test_replies_come_in_the_order_of_the_commands(connection: Connection) -> None:
    futures = [connection.execute("ECHO", f"{i}") for i in range(1000)]
    assert await outcomes(futures) == [b"%d" % i for i in range(1000)]


async def test_all_kinds_of_replies(connection: Connection, namespace: str) -> None:
    key = f"{namespace}:ü"
    assert await connection.execute("SET", key, b"\x00\xff") == b"OK"
    assert await connection.execute("GET", key) == b"\x00\xff"
    assert await connection.execute("DEL", key) == 1
    assert await connection.execute("GET", key) is None
    assert await connection.execute("HGETALL", key) == []
    assert await connection.execute("EVAL", "return {1, {'a', false}}", 0) == [1, [b"a", None]]


async def test_an_error_belongs_to_its_command_alone(connection: Connection, namespace: str) -> None:
    await connection.execute("SET", namespace, "text")
    before, wrong, unknown, after = await outcomes(
        [
            connection.execute("ECHO", "before"),
            connection.execute("HGET", namespace, "f"),
            connection.execute("NOSUCHCOMMAND"),
            connection.execute("ECHO", "after"),
        ]
    )
    assert (before, after) == (b"before", b"after")
    assert isinstance(wrong, ServerRefused)
    assert isinstance(unknown, ServerRefused)
    assert (wrong.code, unknown.code) == ("WRONGTYPE", "ERR")
    await connection.execute("DEL", namespace)


async def test_a_caller_that_gives_up_does_not_take_the_reply_of_another(connection: Connection) -> None:
    first, second = connection.execute("ECHO", "1"), connection.execute("ECHO", "2")
    first.cancel()
    assert await second == b"2"


async def test_a_reply_can_be_read_by_a_function(connection: Connection) -> None:
    def fails(raw: bytes) -> int:
        raise ValueError(raw)

    good, bad, after = await outcomes(
        [
            connection.execute_parsed(int, "ECHO", "17"),
            connection.execute_parsed(fails, "ECHO", "x"),
            connection.execute("ECHO", "after"),
        ]
    )
    assert (good, after) == (17, b"after")
    assert isinstance(bad, ValueError)


async def test_a_huge_value_goes_and_comes_back(connection: Connection, namespace: str) -> None:
    value = os.urandom(1024) * 8192
    stored = connection.execute("SET", namespace, value)
    await connection.drain()
    assert await stored == b"OK"
    assert await connection.execute("GET", namespace) == value
    await connection.execute("DEL", namespace)


async def test_drain_waits_while_the_socket_is_full(own_server: Server) -> None:
    connection = await Connection.open(own_server.url, timeout=30)
    own_server.pause()
    value = b"x" * (1024 * 1024)
    futures = [connection.execute("ECHO", value) for _ in range(24)]
    await asyncio.sleep(0)  # let the flush run
    draining = asyncio.ensure_future(connection.drain())
    done, _ = await asyncio.wait([draining], timeout=0.05)
    assert not done
    own_server.resume()
    async with asyncio.timeout(20):
        await draining
        assert all(reply == value for reply in await asyncio.gather(*futures))
    connection.close()


async def test_drain_ends_with_the_connection(own_server: Server) -> None:
    connection = await Connection.open(own_server.url, timeout=30)
    own_server.pause()
    futures = [connection.execute("ECHO", b"x" * (1024 * 1024)) for _ in range(24)]
    await asyncio.sleep(0)  # let the flush run
    draining = asyncio.ensure_future(connection.drain())
    await asyncio.sleep(0)  # let it begin to wait
    own_server.kill()
    assert all(isinstance(end, ServerUnavailable) for end in await outcomes([draining, *futures]))


async def test_the_name_shows_in_the_list_of_clients(connection: Connection) -> None:
    assert await connection.execute("CLIENT", "GETNAME") == b"pipelines"


async def test_the_database_of_the_url_is_chosen(server: Server) -> None:
    connection = await Connection.open(server.url + "/3")
    assert b" db=3 " in await connection.execute("CLIENT", "INFO")
    connection.close()


async def test_a_database_that_does_not_exist_is_refused(server: Server) -> None:
    with pytest.raises(ServerRefused, match="out of range"):
        await Connection.open(server.url + "/999")


@pytest.mark.parametrize("kind", available_kinds())
async def test_a_unix_socket(kind: Any) -> None:
    with Server(kind, unix=True) as server:
        connection = await Connection.open(server.url)
        assert await connection.execute("PING") == b"PONG"
        assert str(connection.address) == server.socket
        connection.close()


@pytest.mark.parametrize("kind", available_kinds())
async def test_passwords_open_the_server_and_are_never_told(kind: Any) -> None:
    with Server(kind, args=("--requirepass", SECRET)) as server:
        place = f"127.0.0.1:{server.port}"
        connection = await Connection.open(f"redis://:{SECRET_QUOTED}@{place}")
        await connection.execute("ACL", "SETUSER", "ann", "on", f">{SECRET}", "~*", "+@all", "-ping", "-client")
        connection.close()
        connection = await Connection.open(f"redis://ann:{SECRET_QUOTED}@{place}", name="ann")
        assert await connection.execute("ACL", "WHOAMI") == b"ann"
        assert SECRET not in repr(connection.address)
        connection.close()
        for url in (f"redis://{place}", f"redis://:wrong-{SECRET_QUOTED}@{place}"):
            with pytest.raises(ServerRefused) as refused:
                await Connection.open(url)
            assert refused.value.code in ("NOAUTH", "WRONGPASS")
            assert place in str(refused.value)
            assert SECRET not in str(refused.value)


async def test_a_server_that_repeats_the_password_does_not_get_it_into_an_error() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(f"-ERR unknown command 'AUTH', with args '{SECRET}'\r\n+PONG\r\n".encode())

    listening = await asyncio.start_server(rude, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    with pytest.raises(ServerRefused) as refused:
        await Connection.open(f"redis://:{SECRET_QUOTED}@127.0.0.1:{port}")
    assert "***" in str(refused.value)
    assert SECRET not in str(refused.value)
    listening.close()


async def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    place = f"127.0.0.1:{free_port()}"
    with pytest.raises(ServerUnavailable) as gone:
        await Connection.open(f"redis://:{SECRET_QUOTED}@{place}")
    assert place in str(gone.value)
    with pytest.raises(ServerUnavailable) as gone:
        await Connection.open_with_retry(f"redis://:{SECRET_QUOTED}@{place}", deadline=0.2)
    assert place in str(gone.value)
    assert SECRET not in str(gone.value)


@pytest.mark.parametrize("url", ["http://x", "redis://:pa/ss@host", "", "host:1"])
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="percent-encoded") as wrong:
        Address.parse(url)
    assert "pa/ss" not in str(wrong.value)


async def test_a_server_that_comes_later_is_found(own_server: Server) -> None:
    own_server.stop()
    opening = asyncio.ensure_future(Connection.open_with_retry(own_server.url, deadline=20))
    await asyncio.to_thread(own_server.start)
    connection = await opening
    assert await connection.execute("PING") == b"PONG"
    connection.close()


async def test_a_server_that_dies_fails_all_commands_at_once(own_server: Server) -> None:
    connection = await Connection.open(own_server.url, timeout=60)
    told: list[ServerUnavailable] = []
    connection.on_lost = told.append
    own_server.pause()
    futures = [connection.execute("ECHO", f"{i}") for i in range(100)]
    await asyncio.sleep(0)  # let the flush run
    own_server.kill()
    replies = await outcomes(futures)
    assert all(isinstance(reply, ServerUnavailable) for reply in replies)
    assert len(set(map(id, replies))) == 100
    assert connection.closed
    assert len(told) == 1
    with pytest.raises(ServerUnavailable):
        await connection.execute("PING")
    with pytest.raises(ServerUnavailable):
        await connection.execute_blocking("BLPOP", "k", 0, patience=0)
    with pytest.raises(ServerUnavailable):
        await connection.drain()


async def test_a_server_that_hangs_is_given_up_after_the_timeout(own_server: Server) -> None:
    connection = await Connection.open(own_server.url, timeout=0.3)
    own_server.pause()
    clock = asyncio.get_running_loop().time
    begun = clock()
    replies = await outcomes([connection.execute("PING"), connection.execute("PING")])
    assert all(isinstance(reply, ServerUnavailable) for reply in replies)
    assert "has not answered for 0.3 s" in str(replies[0])
    assert clock() - begun >= 0.3
    own_server.resume()


async def test_a_loop_that_was_blocked_does_not_blame_the_server(own_server: Server) -> None:
    import time

    connection = await Connection.open(own_server.url, timeout=0.2)
    reply = connection.execute("PING")
    await asyncio.sleep(0)  # let the flush run
    time.sleep(0.5)  # noqa: ASYNC251 - the loop is to be blocked
    assert await reply == b"PONG"
    connection.close()


async def test_a_blocking_command_may_take_its_time_and_the_timeout_more(server: Server, namespace: str) -> None:
    connection = await Connection.open(server.url, timeout=0.2)
    assert await connection.execute_blocking("BLPOP", namespace, "0.6", patience=0.6) is None
    forever = connection.execute_blocking("BLPOP", namespace, 0, patience=0)
    done, _ = await asyncio.wait([forever], timeout=0.5)
    assert not done
    connection.close()
    assert isinstance((await outcomes([forever]))[0], ServerUnavailable)


async def test_an_idle_connection_stays_open(server: Server) -> None:
    connection = await Connection.open(server.url, timeout=0.2)
    lost = asyncio.get_running_loop().create_future()
    connection.on_lost = lost.set_result
    done, _ = await asyncio.wait([lost], timeout=0.7)
    assert not done
    assert await connection.execute("PING") == b"PONG"
    connection.close()
    assert not lost.done()


async def test_a_closed_connection_fails_what_is_pending(connection: Connection) -> None:
    reply = connection.execute("PING")
    connection.close()
    assert isinstance((await outcomes([reply]))[0], ServerUnavailable)


async def test_a_peer_that_speaks_something_else_is_left() -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    listening = await asyncio.start_server(http, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    with pytest.raises(ServerUnavailable, match="what no command asked for"):
        await Connection.open(f"redis://127.0.0.1:{port}")
    listening.close()
