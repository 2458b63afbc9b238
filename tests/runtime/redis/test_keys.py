"""Names of keys, and the list that says how long each lives."""

from __future__ import annotations

import pytest

from stagebell.runtime.redis.keys import (
    LIFETIMES,
    EventsKeys,
    LeasedKeys,
    NamespaceKeys,
    PartitionKeys,
    ProcessKeys,
    leased_keys,
    lifetime,
)

pytestmark = pytest.mark.unit

PARTITION = PartitionKeys("ns", "writer", 3)
PROCESS = ProcessKeys("ns", "host-17")
EVENTS = EventsKeys("ns")
SHARED = NamespaceKeys("ns")


def test_a_partition_has_its_keys_under_one_tag() -> None:
    assert PARTITION.tag == "ns:writer:3"
    assert PARTITION.inbox == "sb:{ns:writer:3}:in"
    assert PARTITION.own == "sb:{ns:writer:3}:own"
    assert PARTITION.ctl == "sb:{ns:writer:3}:ctl"
    assert PARTITION.state("a/b {c}") == "sb:{ns:writer:3}:s:a/b {c}"
    assert PARTITION.journal("T") == "sb:{ns:writer:3}:j:T"
    assert PARTITION.savepoints("T") == "sb:{ns:writer:3}:sp:T"
    assert (PARTITION.due, PARTITION.timed) == ("sb:{ns:writer:3}:due", "sb:{ns:writer:3}:dm")
    assert PARTITION.later == "sb:{ns:writer:3}:later"
    assert PARTITION.marker("T") == "sb:{ns:writer:3}:d:T"


def test_the_other_keys() -> None:
    assert PROCESS.inbox == "sb:{ns:w:host-17}:in"
    assert PROCESS.bell == SHARED.bell_head + "host-17}:bell" == "sb:{ns:w:host-17}:bell"
    assert (EVENTS.due, EVENTS.timed) == ("sb:{ns}:events:due", "sb:{ns}:events:dm")
    assert (EVENTS.inbox, EVENTS.own) == ("sb:{ns}:events", "sb:{ns}:events:own")
    assert (SHARED.reg, SHARED.workers) == ("sb:{ns}:reg", "sb:{ns}:workers")
    assert SHARED.worker("host-17") == "sb:{ns}:worker:host-17"
    assert SHARED.client_replies("c-1") == "sb:{ns:c:c-1}:rep"


@pytest.mark.parametrize("keys", [PARTITION, PROCESS, PartitionKeys("ns", "w", 3), PartitionKeys("ns", "ä.b-c", 0)])
def test_a_tag_leads_back_to_its_keys(keys: LeasedKeys) -> None:
    again = leased_keys(keys.tag)
    assert (again, type(again), again.inbox) == (keys, type(keys), keys.inbox)


@pytest.mark.parametrize("tag", ["", "ns", "ns:writer:x", "n s:writer:3", "ns:wri ter:3", "ns:a:b:3"])
def test_a_tag_that_names_nothing_is_refused(tag: str) -> None:
    with pytest.raises(ValueError):
        leased_keys(tag)


@pytest.mark.parametrize("name", ["", "a:b", "a{b", "a}b", "a b", "ä", "x" * 65, "a\n"])
def test_a_namespace_that_could_be_mistaken_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        NamespaceKeys(name)
    with pytest.raises(ValueError, match="namespace"):
        PartitionKeys(name, "writer", 0)


def test_a_worker_that_could_be_taken_for_a_partition_is_refused() -> None:
    with pytest.raises(ValueError, match="worker"):
        ProcessKeys("ns", "3")


ALL_KEYS = [
    *(getattr(PARTITION, n) for n in ("own", "hold", "inbox", "ctl", "run", "ids", "dlq", "later", "due", "timed")),
    *(PARTITION.state("a\nb"), PARTITION.journal("T"), PARTITION.savepoints("T"), PARTITION.marker("T")),
    *(getattr(PROCESS, n) for n in ("own", "hold", "inbox", "ctl", "run", "dlq", "bell")),
    *(getattr(EVENTS, n) for n in ("own", "hold", "inbox", "run", "dlq", "due", "timed")),
    *(
        SHARED.reg,
        SHARED.workers,
        SHARED.ended,
        SHARED.probe,
        EVENTS.marker("1-1"),
        SHARED.worker("w-1"),
        SHARED.client_replies("c-1"),
        SHARED.client_alive("c-1"),
    ),
]


def test_each_key_has_its_place_in_the_list() -> None:
    assert [key for key in ALL_KEYS if lifetime(key) is None] == []


def test_no_pattern_is_idle_and_no_key_has_two() -> None:
    for rule in LIFETIMES:
        assert any(rule.pattern.fullmatch(key) for key in ALL_KEYS), rule.pattern.pattern
    for key in ALL_KEYS:
        assert sum(bool(rule.pattern.fullmatch(key)) for rule in LIFETIMES) == 1, key


@pytest.mark.parametrize("key", ["sb:{ns}:other", "sb:{ns:writer:3}:other", "foreign", "sb:{ns:writer:3}:bell"])
def test_a_key_without_a_place_is_noticed(key: str) -> None:
    assert lifetime(key) is None
