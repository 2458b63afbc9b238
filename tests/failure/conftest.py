"""Fixtures for tests whose worker processes are killed, frozen and cut off..

They take their time. So `make test` runs each of them, and each crash story at each boundary, on one kind of server and
in one way, which its name decides; `make torture` runs the others.
"""

from __future__ import annotations

from binascii import crc32
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.failure.processes import Workers
from tests.failure.view import View
from tests.support.servers import Server

# Of tests that differ in nothing but these, one is enough for the normal run.
_ALIKE = ("server", "moment", "seed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    alike: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("torture") is None:
            alike[_what(item)].append(item)
    for what, tests in alike.items():
        chosen = crc32(what.encode()) % len(tests)
        for item in tests[:chosen] + tests[chosen + 1 :]:
            item.add_marker(pytest.mark.torture)


def _what(item: Any) -> str:
    if not hasattr(item, "callspec"):
        return str(item.nodeid)
    alike = {str(item.callspec.params[name]) for name in _ALIKE if name in item.callspec.params}
    return " ".join([item.path.name, item.originalname, *(p for p in item.callspec.id.split("-") if p not in alike)])


@pytest.fixture
def workers(request: pytest.FixtureRequest, server: Server, namespace: str, tmp_path: Path) -> Iterator[Workers]:
    """Starts worker processes; all are ended after the test, and what they said is shown when it failed."""
    started = Workers(server.url, namespace, tmp_path)
    yield started
    started.reap()
    print(started.report())


@pytest.fixture
def view(server: Server, namespace: str) -> Iterator[View]:
    """What the server shows of the test's namespace."""
    client = server.client()
    yield View(client, namespace)
    client.close()
