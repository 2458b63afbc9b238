"""What a runtime declares that it cannot do, and where users are told.

A test says what it needs with `@pytest.mark.needs(name=value)`, and runs only on runtimes that declare this value.
"""

from __future__ import annotations

from stagebell.testing.contract import Capabilities

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
