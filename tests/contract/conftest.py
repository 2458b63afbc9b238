"""The runtimes under the contract: every test of this folder runs once for each.

A runtime says here what it cannot do, in `Capabilities`; a test asks for what it needs and is left out
only where the runtime says so.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from autogen_core import AgentRuntime

import stagebell
from tests.support.servers import Server, available_kinds

HAS_REDIS_RUNTIME = hasattr(stagebell, "RedisRuntime")


@dataclass(frozen=True)
class Capabilities:
    """What a runtime declares.

    Attributes:
        context_variables: a handler sees the context variables of its caller.
        handles_before_start: messages given before the first start wait and are not refused.
        publishes_at_once: a publish of a handler leaves before the handler ends.
        publish_then_call: order holds across a handler's publishes and calls.
        any_object: messages are handed over as they are; types need no registration and have no size.
        custom_subscriptions: subscriptions of other classes than AutoGen's two are taken.
        cancels_calls: a token reaches the handler of a call.
        finds_circles: calls that wait for each other end in `CallCycleError`.
    """

    context_variables: bool = True
    handles_before_start: bool = True
    publishes_at_once: bool = True
    publish_then_call: bool = True
    any_object: bool = True
    custom_subscriptions: bool = True
    cancels_calls: bool = True
    finds_circles: bool = True


IN_MEMORY = Capabilities()
OVER_A_SERVER = Capabilities(
    context_variables=False,
    handles_before_start=False,
    publishes_at_once=False,
    publish_then_call=False,
    any_object=False,
    custom_subscriptions=False,
    cancels_calls=False,
    finds_circles=False,
)


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
                urls[kind] = stack.enter_context(Server(kind)).url  # type: ignore[arg-type]
            return urls[kind]

        yield url


@pytest.fixture(params=_kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """ "local", "redis" or "valkey"."""
    return str(request.param)


@pytest.fixture
def capabilities(kind: str) -> Capabilities:
    """What the runtime under test declares."""
    return IN_MEMORY if kind == "local" else OVER_A_SERVER


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
