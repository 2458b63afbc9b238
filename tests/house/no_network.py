"""A pytest plugin: no test leaves this machine, and tests of the first two layers connect to nothing at all.

Loaded by tests/conftest.py. It guards this process; the worker processes that tests start are our own
program, which connects to nothing but the server it was given.
"""

import ipaddress
import socket
from collections.abc import Generator
from typing import Any

import pytest

NOTHING_OUTSIDE = ("unit", "runtime")

_patch = pytest.MonkeyPatch()
_real_connect = socket.socket.connect
_real_connect_ex = socket.socket.connect_ex


class NetworkUsed(AssertionError):
    """A test tried to connect to what its layer may not reach."""


def _is_here(address: Any) -> bool:
    if isinstance(address, str | bytes):
        return True  # a path: a unix socket
    host = str(address[0])
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Guard:
    """What the test that runs now may connect to."""

    layer = ""

    def check(self, address: Any) -> None:
        if self.layer in NOTHING_OUTSIDE:
            raise NetworkUsed(f"a {self.layer} test connects to {address!r}; mark it `integration`")
        if not _is_here(address):
            raise NetworkUsed(f"a test connects to {address!r}, which is not on this machine")


_guard = _Guard()


def _connect(self: socket.socket, address: Any) -> None:
    _guard.check(address)
    _real_connect(self, address)


def _connect_ex(self: socket.socket, address: Any) -> int:
    _guard.check(address)
    return _real_connect_ex(self, address)


def pytest_configure() -> None:
    _patch.setattr(socket.socket, "connect", _connect)
    _patch.setattr(socket.socket, "connect_ex", _connect_ex)


def pytest_unconfigure() -> None:
    _patch.undo()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    _guard.layer = next((layer for layer in NOTHING_OUTSIDE if item.get_closest_marker(layer)), "")
    try:
        return (yield)
    finally:
        _guard.layer = ""
