"""The addresses of a server's name, looked up without holding anything else up.

A resolver whose servers are away answers after half a minute or more, and its call cannot be interrupted. asyncio makes
it in a thread for which the end of the loop waits, so a program that has given up long ago would not end. Here nobody
waits for it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


async def connect_to_any(
    protocol: Callable[[], ProtocolT], host: str, port: int, tls: ssl.SSLContext | None
) -> ProtocolT:
    """Connect to the first address of a host that answers.

    Raises:
        OSError: the name is not known, or none of its addresses answers; the text is of the last one.
    """
    loop, name = asyncio.get_running_loop(), host if tls is not None else None
    *others, last = await addresses_of(host, port)
    for each in others:
        with suppress(OSError):
            return (await loop.create_connection(protocol, each, port, ssl=tls, server_hostname=name))[1]
    return (await loop.create_connection(protocol, last, port, ssl=tls, server_hostname=name))[1]


async def addresses_of(host: str, port: int) -> list[str]:
    """The IP addresses of a host, in the order in which they should be tried.

    Raises:
        OSError: the name is not known, or cannot be looked up.
    """
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return [host]
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def end(addresses: list[str], error: OSError | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(error)

    def look_up() -> None:
        addresses, problem = list[str](), None
        try:
            addresses = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError) as error:  # a name that no resolver can be asked for is no name
            problem = error if isinstance(error, OSError) else OSError(f"{host!r} is no name of a host")
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(end, addresses, problem)

    threading.Thread(target=look_up, name="stagebell-names", daemon=True).start()
    return await found
