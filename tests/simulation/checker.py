"""What is in the server when everything has come to rest, and what is wrong with it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from stagebell.runtime.redis.retries import MOST_ATTEMPTS
from tests.simulation.expected import Expected
from tests.simulation.programs import Root
from tests.simulation.store import Store
from tests.simulation.workers import NAMESPACE, TYPES

_OUTPUT = re.compile(r"(.*)\.(\d+)o")
_ENDED = re.compile(r"(ok|raised|refused):([\w.]+)")
_STATE = re.compile(r"sb:\{(\w+):(\w+):\d+\}:s:(.*)")
_LEFT = ("j", "sp", "run", "hold", "later", "dm", "events:dm")


@dataclass
class Found:
    """The server at rest."""

    logs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    versions: dict[str, int] = field(default_factory=dict[str, int])
    letters: Counter[str] = field(default_factory=Counter[str])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    left: list[str] = field(default_factory=list[str])
    grants: int = 0

    @property
    def worn_out(self) -> bool:
        """A message was set aside since its owners were taken for dead so often, and they were: nothing more is known.

        A partition had as many owners as a message may lose; each was cut off, or starved, for longer than its lease.
        """
        return self.grants >= MOST_ATTEMPTS and any("died" in reason for reason in self.reasons.values())


def look(store: Store) -> Found:
    """Read everything that matters."""
    found = Found()
    keys: list[bytes] = sorted(store.ask(("KEYS", "sb:*"))[0])
    for name in map(bytes.decode, keys):
        if match := _STATE.fullmatch(name):
            version, data = store.ask(("HMGET", name, "v", "d"))[0]
            agent = f"{match[2]}/{match[3]}"
            found.versions[agent] = int(version)
            state = json.loads(data)["state"] if data else {"log": []}
            found.logs[agent] = state["log"] if "log" in state else state["lines"]
        elif name.endswith(":own"):
            found.grants = max(found.grants, int(store.ask(("HGET", name, "epoch"))[0] or 0))
        elif name.endswith("dlq"):
            for _, flat in store.ask(("XRANGE", name, "-", "+"))[0]:
                _letter(found, dict(zip(flat[::2], flat[1::2], strict=True)))
        elif name.partition("}:")[2].partition(":")[0] in _LEFT:
            found.left.append(f"{name} {store.ask(('HGETALL', name))[0]}")
        elif name.endswith(("}:in", "}:events", "}:ctl")) and store.ask(("XLEN", name))[0]:
            found.left.append(f"{name} {store.ask(('XRANGE', name, '-', '+'))[0]}")
    return found


def _letter(found: Found, fields: dict[bytes, bytes]) -> None:
    label = re.search(rb'"label": ?"([^"]*)"', fields.get(b"e", fields.get(b"data", b"")))
    name = label[1].decode() if label else repr(fields)
    found.letters[name] += 1
    found.reasons[name] = fields[b"reason"].decode()[-200:]


def waiting(partitions: int) -> list[tuple[str, str]]:
    """Commands that answer 0 at rest: how long inboxes and lists of ends are, how many timers and replies to come."""
    heads = [f"sb:{{{NAMESPACE}:{type}:{p}}}:" for type in TYPES for p in range(partitions)]
    events = f"sb:{{{NAMESPACE}}}:events"
    lengths = [("XLEN", f"{head}{stream}") for head in heads for stream in ("in", "ctl")] + [("XLEN", events)]
    lengths += [("HLEN", f"{head}later") for head in heads]
    return lengths + [("ZCARD", f"{head}due") for head in [*heads, f"{events}:"]]


def compare(found: Found, expected: Expected) -> list[str]:
    """What differs from what must be."""
    most = expected.at_most()
    lines = Counter((agent, _settled(line, expected)) for agent, log in found.logs.items() for line in log)
    problems = [f"left behind: {left}" for left in found.left]
    for agent, line in sorted(lines.keys() | expected.lines.keys()):
        got, due = lines[agent, line], expected.lines[agent, line]
        if not due <= got <= most.lines[agent, line] + most.loose[line.partition("#")[0]]:
            problems.append(f"{agent} has {line!r} {got} times, not {due}")
    for agent in sorted(found.versions.keys() | expected.versions.keys()):
        got, due = found.versions.get(agent, 0), expected.versions[agent]
        if not due <= got <= most.versions[agent]:
            problems.append(f"{agent} has version {got}, not {due}")
    for label in sorted((found.letters.keys() | expected.letters.keys()) - expected.facts.works.keys()):
        got, due = found.letters[label], expected.letters[label]
        if not due <= got <= most.letters[label] + (label in expected.failing_calls):
            problems.append(f"{got} dead letters {label}, not {due}: {found.reasons.get(label, '')}")
    return problems + out_of_order(found.logs, most)


def _settled(line: str, expected: Expected) -> str:
    """The line as it is when no call stumbled, and whatever came of those that were refused."""

    def settle(match: re.Match[str]) -> str:
        if match[2] in expected.facts.refused:
            return f"any:{match[2]}"
        return f"ok:{match[2]}" if match[1] == "raised" and match[2] in expected.shaky else match[0]

    return _ENDED.sub(settle, line)


def out_of_order(logs: dict[str, list[str]], most: Expected) -> list[str]:
    """Outputs of one turn that one receiver got in another order; not of turns that were made several times."""
    problems: list[str] = []
    for agent, log in logs.items():
        last: dict[str, int] = {}
        for line in log:
            if (match := _OUTPUT.fullmatch(line)) and most.lines[agent, line] == 1:
                sender, number = match[1], int(match[2])
                if last.get(sender, -1) > number:
                    problems.append(f"{agent} got {line} after output {last[sender]}")
                last[sender] = number
    return problems


def roots_out_of_order(logs: dict[str, list[str]], roots: list[Root]) -> list[str]:
    """Messages of the client that one agent got in another order than they were sent."""
    problems: list[str] = []
    for agent, log in logs.items():
        sent = [root.label for root in roots if root.agent == agent and root.how not in ("event", "timer")]
        got = [line for line in log if line in sent]
        if got != [label for label in sent if label in got]:
            problems.append(f"{agent} got {got}, sent as {sent}")
    return problems


def records_that_changed(records: dict[str, set[str]], expected: Expected) -> list[str]:
    """Places where a turn kept one value and then another; not of turns that were made several times."""
    made: Counter[str] = Counter()
    for (_, line), count in expected.at_most().lines.items():
        made[line] += count
    changed = [(place, values) for place, values in records.items() if len(values) > 1 and made[_label(place)] == 1]
    return [f"{place} kept {sorted(values)}" for place, values in changed]


def _label(place: str) -> str:
    return place.partition("#")[0]


def wrong_replies(replies: dict[str, Any], expected: Expected) -> list[str]:
    """Calls of the client that ended otherwise than they must; an unknown outcome is told as an exception."""
    problems: list[str] = []
    for label, due in expected.replies.items():
        got = replies.get(label, "no end")
        if got != due and not (isinstance(got, tuple) and got[0] == "unknown"):
            problems.append(f"call {label} ended in {got!r}, not {due!r}")
    return problems
