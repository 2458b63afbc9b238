"""What tests of your own need: a model without a network, and faults on purpose.

    ScriptedModel      a chat model that says what the test tells it to
    crash              ends a runtime as kill -9 would
    freeze, thaw       let a runtime stand still, as SIGSTOP would, and go on as a zombie
    ManualClock        a time of day that moves when the test says so
    FaultyConnection   a line to the server that is cut, slow, or loses replies

`stagebell.testing.contract` is the suite that every runtime of ours passes, for whoever writes another one.
"""

from __future__ import annotations

from stagebell.testing.clock import ManualClock
from stagebell.testing.connection import FaultyConnection
from stagebell.testing.faults import crash, freeze, thaw
from stagebell.testing.model import Answer, ModelRequest, Script, ScriptedModel, ScriptExhausted

__all__ = [
    "Answer",
    "FaultyConnection",
    "ManualClock",
    "ModelRequest",
    "Script",
    "ScriptExhausted",
    "ScriptedModel",
    "crash",
    "freeze",
    "thaw",
]
