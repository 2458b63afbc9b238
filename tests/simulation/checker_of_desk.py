"""What the agent that is bound to its process must have done, and how its calls must have ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.simulation.agents import ASKED
from tests.simulation.checker import Found
from tests.simulation.expected import Expected
from tests.simulation.network import Command
from tests.simulation.programs import fails
from tests.simulation.workers import NAMESPACE

_PROCESS = f"sb:{{{NAMESPACE}:w:".encode()


class Holders:
    """The processes that have held the desk, by what the server has answered."""

    def __init__(self) -> None:
        self.names: set[bytes] = set()
        self.left = False
        """It has left a process: that ended, or was taken for dead."""

    def watch(self, name: str, command: Command, answer: Any) -> None:
        """The server has executed a command."""
        arguments = command[3 + int(command[2]) :] if name in ("register", "acquire", "claim_type") else ()
        if name == "claim_type" and answer[0] == 1:
            self.names.add(arguments[1])
            self.left = self.left or len(self.names) > 1
        elif name == "register":
            changes = zip(arguments[::3], arguments[1::3], strict=True)
            self.left = self.left or (b"del", b"t:desk") in changes
        elif name == "acquire" and command[3].startswith(_PROCESS) and arguments[0] not in command[3]:
            self.left = True


def compare_desk(
    found: Found, expected: Expected, replies: dict[str, Any], roots: Collection[str], holders: Holders, restarts: int
) -> list[str]:
    """What differs: each message is handled at most once, and just once when the desk has stayed where it was.

    What the client repeats (`roots`) is another message for another process. One that was taken for dead, and goes on,
    handles again what it had not committed by then.
    """
    facts, most, problems, stayed = expected.facts, expected.at_most(), list[str](), not holders.left
    for label, work in sorted(facts.works.items()):
        begun, done, due = facts.begun[label], facts.done[label], expected.desk[label] if stayed else 0
        times = len(holders.names) if label in roots else most.desk[label]
        times *= 1 + restarts * holders.left
        if not due <= begun <= times:
            problems.append(f"the desk handled {label} {begun} times, was sent it {due} to {times} times")
        if found.letters[label] > (times if fails(work) or not stayed or label in facts.late else 0):
            problems.append(f"{found.letters[label]} dead letters {label}: {found.reasons[label]}")
        outcomes = ASKED[label] | ({replies[label]} if label in replies else set())
        allowed = {f"raised:{label}" if fails(work) else f"ok:{label}"} if begun else set[str]()
        allowed |= set() if stayed else {"gone"}
        wrong = [outcome for outcome in outcomes if outcome not in allowed and outcome[0] != "unknown"]
        if wrong or (f"ok:{label}" in outcomes and not done):
            problems.append(f"the call {label} of the desk, begun {begun} times and ended {done}, ended in {wrong}")
    return problems
