"""A server that asks for a password, and a folder to run commands in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stagebell import Publisher
from tests.runtime.ops.commands import Shell
from tests.support.servers import Server, available_kinds

PASSWORD = "op3n-sesame"


@pytest.fixture(scope="session")
def locked_url() -> Iterator[str]:
    """A server for all these tests; what commands do does not depend on its kind."""
    with Server(available_kinds()[0], args=("--requirepass", PASSWORD)) as server:
        yield f"redis://:{PASSWORD}@127.0.0.1:{server.port}"


@pytest.fixture
def shell(tmp_path: Path, locked_url: str, namespace: str) -> Iterator[Shell]:
    """Where commands run; whatever they said, the password is not in it."""
    shell = Shell(tmp_path, locked_url, namespace)
    yield shell
    shell.close()
    assert PASSWORD not in shell.said()


@pytest.fixture
async def publisher(locked_url: str, namespace: str) -> AsyncIterator[Publisher]:
    """A client of the same namespace."""
    async with Publisher(locked_url, namespace=namespace) as publisher:
        yield publisher
