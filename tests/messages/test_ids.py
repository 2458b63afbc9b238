"""Ids are the same on every machine."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagebell.messages import ids

pytestmark = pytest.mark.unit


def test_a_message_id_is_a_random_uuid() -> None:
    one, other = ids.new_message_id(), ids.new_message_id()
    assert one != other
    assert UUID(one).version == 4
    assert UUID(one).hex == one


def test_ids_of_turns_and_partitions_never_change() -> None:
    # They are stored in servers: these values are part of the wire format.
    turn = ids.turn_id("m1", "writer/alice")
    assert turn == "4701e7c428dbf32d470407bf"
    assert ids.call_id(turn, "0.2") == "4701e7c428dbf32d470407bf.0.2"
    assert ids.output_id(turn, 3) == "4701e7c428dbf32d470407bf.3o"
    assert [ids.partition_of(f"writer/{key}", 16) for key in ("alice", "bob", "åsa")] == [13, 10, 4]


def test_two_recipients_of_one_message_have_two_turns() -> None:
    assert ids.turn_id("m1", "writer/alice") != ids.turn_id("m1", "writer/bob")
    assert ids.turn_id("m1", "writer/alice") != ids.turn_id("m1writer", "/alice")


@given(st.text(st.characters(codec="utf-8")), st.integers(1, 64))
def test_every_agent_has_a_turn_id_and_a_partition(key: str, partitions: int) -> None:
    assert re.fullmatch("[0-9a-f]{24}", ids.turn_id("m1", f"writer/{key}"))
    assert 0 <= ids.partition_of(f"writer/{key}", partitions) < partitions


def test_agents_spread_over_the_partitions() -> None:
    filled = {ids.partition_of(f"writer/{key}", 16) for key in range(400)}
    assert filled == set(range(16))
