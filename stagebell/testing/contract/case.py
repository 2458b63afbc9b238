"""How a case of the contract is written: a plain async method, given a runtime that is not started yet."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Capabilities:
    """What a runtime declares that it can do.

    Attributes:
        context_variables: a handler sees the context variables of its caller.
        handles_before_start: messages given before the first start wait and are not refused.
        publishes_at_once: a publish of a handler leaves before the handler ends.
        publish_then_call: order holds across a handler's publishes and calls.
        any_object: messages are handed over as they are; types need no registration and have no size.
        custom_subscriptions: subscriptions of other classes than AutoGen's two are taken.
    """

    context_variables: bool = True
    handles_before_start: bool = True
    publishes_at_once: bool = True
    publish_then_call: bool = True
    any_object: bool = True
    custom_subscriptions: bool = True

    def meets(self, needs: dict[str, bool]) -> bool:
        """True when it declares all of this.

        Raises:
            KeyError: there is no capability of this name.
        """
        declared = asdict(self)
        return all(declared[name] == value for name, value in needs.items())

    def missing(self) -> list[str]:
        """The names of what it cannot do."""
        return [name for name, can in asdict(self).items() if not can]


class Room:
    """A group of cases; a subclass makes the runtimes."""

    capabilities = Capabilities()
    limit = 30.0
    """Seconds that a case may take."""

    def make_runtime(self) -> Any:
        """A new runtime, not started; may be a coroutine function."""
        raise NotImplementedError("override make_runtime(): it returns a new runtime that is not started")

    def __init_subclass__(cls) -> None:
        # What the runtime declares that it cannot do is left out and not skipped: pytest does not collect None.
        for name in dir(cls):
            needs: dict[str, bool] | None = getattr(getattr(cls, name), "needs", None)
            if needs is not None and not cls.capabilities.meets(needs):
                setattr(cls, name, None)


Test = Callable[..., Awaitable[None]]


def case(*, each: Sequence[Any] = (), **needs: bool) -> Callable[[Test], Test]:
    """A case of the contract: it gets a runtime, which is closed after it.

    Args:
        each: run it for each of these, which it gets as a further argument, on a runtime of its own.
        needs: capabilities that the runtime must declare.
    """

    def wrap(test: Test) -> Test:
        @functools.wraps(test)
        async def run(self: Room) -> None:
            for arguments in [(value,) for value in each] if each else [()]:
                made = self.make_runtime()
                runtime = await made if inspect.isawaitable(made) else made
                try:
                    async with asyncio.timeout(self.limit):
                        await test(self, runtime, *arguments)
                finally:
                    await runtime.close()

        vars(run).pop("__wrapped__")  # pytest would take the runtime for a fixture
        vars(run)["needs"] = needs
        return run

    return wrap


async def start(runtime: Any) -> None:
    """Start a runtime, whether its `start` is to be awaited or not."""
    started = runtime.start()
    if inspect.isawaitable(started):
        await started


class Caught:
    """The error that was raised."""

    value: Any = None


@contextmanager
def raises(
    kind: type[BaseException] | tuple[type[BaseException], ...], match: str = ""
) -> Generator[Caught, None, None]:
    """Fail unless the block raises such an error, whose text `match` is found in."""
    caught = Caught()
    try:
        yield caught
    except kind as error:
        caught.value = error
    else:
        raise AssertionError(f"{kind} was not raised")
    if not re.search(match, str(caught.value)):
        raise AssertionError(f"{caught.value!r} does not match {match!r}") from caught.value
