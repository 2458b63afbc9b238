"""The runtimes under the contract: every test of this folder runs once for each.

A runtime says in `capabilities.py` what it cannot do; a test that needs something is marked with it, and is left
out only where the runtime says so.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from autogen_core import AgentRuntime

import stagebell
from tests.contract import capabilities as declared
from tests.support.servers import Server, available_kinds

HAS_REDIS_RUNTIME = hasattr(stagebell, "RedisRuntime")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", "needs(name=value): what the runtime under test must declare, see capabilities.py"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a runtime declares that it cannot do; nothing has to be skipped then."""
    left_out = [item for item in items if not _can_run(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _can_run(item: pytest.Item) -> bool:
    needs: dict[str, bool] = {}
    for mark in item.iter_markers("needs"):
        needs.update(mark.kwargs)
    return not needs or declared.of(item.callspec.params["kind"]).meets(needs)


def _kinds() -> list[Any]:
    kinds = [pytest.param("local", marks=pytest.mark.runtime)]
    if HAS_REDIS_RUNTIME:
        kinds += [pytest.param(kind, marks=pytest.mark.integration) for kind in available_kinds()]
    return kinds


@pytest.fixture(scope="session")
def _servers() -> Iterator[Callable[[str], str]]:
    """The address of a server of a kind, started when first asked for."""
    urls: dict[str, str] = {}
    with ExitStack() as stack:

        def url(kind: str) -> str:
            if kind not in urls:
                urls[kind] = stack.enter_context(Server(kind)).url
            return urls[kind]

        yield url


@pytest.fixture(params=_kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """ "local", "redis" or "valkey"."""
    return str(request.param)


@pytest.fixture
def capabilities(kind: str) -> declared.Capabilities:
    """What the runtime under test declares."""
    return declared.of(kind)


MakeRuntime = Callable[..., Any]


@pytest.fixture
async def make_runtime(kind: str, _servers: Callable[[str], str]) -> AsyncIterator[MakeRuntime]:
    """Makes runtimes that are not started; they are closed after the test.

    Those over a server share one namespace, as the worker processes of one application do, unless
    `namespace=` sets another.
    Keyword arguments that begin with `server_` go to those only, without the prefix.
    """
    made: list[Any] = []
    namespace = f"contract-{uuid4().hex[:12]}"

    def make(**options: Any) -> Any:
        over_server = {name[7:]: options.pop(name) for name in list(options) if name.startswith("server_")}
        if kind == "local":
            options.pop("namespace", None)
            runtime: Any = stagebell.LocalRuntime(**options)
        else:
            arguments = {"namespace": namespace, "undeliverable_after": 0.5, **over_server, **options}
            runtime = stagebell.RedisRuntime(_servers(kind), **arguments)
        made.append(runtime)
        return runtime

    yield make
    for runtime in made:
        await runtime.close()


@pytest.fixture
def runtime(make_runtime: MakeRuntime) -> Any:
    """One runtime, not started yet."""
    return make_runtime()


@pytest.fixture
def start() -> Callable[[AgentRuntime], Any]:
    """Start a runtime, whether its `start` is to be awaited or not."""

    async def start(runtime: Any) -> Any:
        started = runtime.start()
        if inspect.isawaitable(started):
            await started
        return runtime

    return start
