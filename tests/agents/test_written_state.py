"""A state as JSON text is the same state as its JSON data."""

from __future__ import annotations

import json
from math import inf

import pytest

from stagebell.agents.limits import Limits
from stagebell.agents.state import (
    Control,
    Job,
    LoopState,
    Run,
    dump_control,
    dump_entry,
    dump_state,
    read_state,
    write_control,
    write_entry,
)
from stagebell.messages.conversation import Asked, Decided, Usage
from stagebell.messages.tool_calls import FinalOutput, ToolCall, UseTools
from stagebell.runtime.engine.snapshots import WrittenState, as_text

pytestmark = pytest.mark.unit

USAGE = Usage(requests=1, cost=inf)
ENTRIES = (
    Asked(run_id="a/b#1", step=0, at=1, content='what of "ü" and \u2028\n?'),
    Decided(run_id="a/b#1", step=1, at=2, decision=UseTools(calls=(ToolCall(id="1", name="add", arguments="{}"),))),
    Decided(run_id="a/b#1", step=2, at=3, decision=FinalOutput(output={"part": [1.5, None, True]}), usage=USAGE),
)
CONTROL = Control(Run(Job("a/b#1", "what?"), Limits(max_cost=inf), usage=USAGE), sequence=3)


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_is_written_as_it_is_dumped(entry: Asked | Decided) -> None:
    assert write_entry(entry) == as_text(dump_entry(entry))


@pytest.mark.parametrize("control", [CONTROL, Control()])
def test_the_control_section_is_written_as_it_is_dumped(control: Control) -> None:
    assert write_control(control) == as_text(dump_control(control))


def test_a_written_state_is_a_mapping_like_any_other() -> None:
    data = dump_state(LoopState(ENTRIES, CONTROL, {"seats": 2}))
    written = WrittenState(as_text(data))
    assert (dict(written), len(written), list(written)) == (data, 3, ["conversation", "control", "business"])
    assert read_state("a/b", written) == LoopState(ENTRIES, CONTROL, {"seats": 2})
    assert json.loads(written.text) == data
