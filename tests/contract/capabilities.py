"""What a runtime declares that it cannot do, and where users are told.

A test says what it needs with `@pytest.mark.needs(name=value)`, and runs only on runtimes that declare this value.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


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


IN_MEMORY = Capabilities()
OVER_A_SERVER = Capabilities(
    context_variables=False,
    handles_before_start=False,
    publishes_at_once=False,
    publish_then_call=False,
    any_object=False,
    custom_subscriptions=False,
)

TOLD_AS = {
    "context_variables": "does not see the context variables of its caller",
    "handles_before_start": "before the first `start` is refused",
    "publishes_at_once": "publishes leave with the commit of its turn",
    "publish_then_call": "a call that follows a publish may arrive before it",
    "any_object": "A message type must be registered where it is sent",
    "custom_subscriptions": "a class with a matching rule of its own is refused",
}
"""The words of README.md or docs/compatibility.md by which users learn that a runtime cannot do this."""


def of(kind: str) -> Capabilities:
    """What a runtime declares, by its kind: "local", "redis" or "valkey"."""
    return IN_MEMORY if kind == "local" else OVER_A_SERVER
