"""What tests of your own need: a model without a network, and faults on purpose.

    ScriptedModel      a chat model that says what the test tells it to
    EchoModel          a chat model that calls every tool once, with arguments that its schema allows
    assert_trajectory  what a run must have done, step by step (`stagebell.testing.trajectory` has the steps)
    override           another model, or other dependencies, for all agents of a type
    forbid_model_requests   no real model can be asked
    capture_messages   every request of the agents to their models, and what came of it
    crash              ends a runtime as kill -9 would
    freeze, thaw       let a runtime stand still, as SIGSTOP would, and go on as a zombie
    ManualClock        a time of day that moves when the test says so
    FaultyConnection   a line to the server that is cut, slow, or loses replies

`stagebell.testing.contract` is the suite that every runtime of ours passes, for whoever writes another one.
"""

from __future__ import annotations

from stagebell.testing.clock import ManualClock
from stagebell.testing.connection import FaultyConnection
from stagebell.testing.echo import EchoModel
from stagebell.testing.faults import crash, freeze, thaw
from stagebell.testing.forbidding import ModelRequestForbidden, forbid_model_requests
from stagebell.testing.model import Answer, ModelRequest, Script, ScriptedModel, ScriptExhausted
from stagebell.testing.overriding import capture_messages, override
from stagebell.testing.trajectory import assert_trajectory

__all__ = [
    "Answer",
    "EchoModel",
    "FaultyConnection",
    "ManualClock",
    "ModelRequest",
    "ModelRequestForbidden",
    "Script",
    "ScriptExhausted",
    "ScriptedModel",
    "assert_trajectory",
    "capture_messages",
    "crash",
    "forbid_model_requests",
    "freeze",
    "override",
    "thaw",
]
