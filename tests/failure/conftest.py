"""Fixtures for tests whose worker processes are killed, frozen and cut off. They run one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failure.processes import Workers
from tests.failure.view import View
from tests.support.servers import Server


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
