"""Fixtures for tests that need a real server; tests that do not ask for them start none."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from stagebell.testing import forbid_model_requests
from tests.support.servers import Server, available_kinds

pytest_plugins = ("tests.house.no_network",)

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=available_kinds())
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server of each kind for the whole run; a test that stops its server starts one of its own."""
    with Server(request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def no_real_models() -> Iterator[None]:
    """No test asks a model that somebody pays for."""
    with forbid_model_requests():
        yield


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def redis_url(server: Server) -> str:
    """Where the server is."""
    return server.url
