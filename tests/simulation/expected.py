"""What must come of the programs of a schedule: computed here, without the runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tests.simulation.agents import DESK, Op
from tests.simulation.programs import Root, fails, stumbles

ATTEMPTS = 3
"""So often a published message is handled when its handler raises."""
READERS = ("clerk", "reader")
"""The types that subscribe to the news; `reader` from some moment on."""


@dataclass
class Facts:
    """What is known of a schedule: labels of messages that perhaps came, or must not have; see `client` and `agents`.

    `begun` and `done`: what the desk has begun, and ended; `works`: the programs of the messages to it, and `late`:
    those under a deadline, once known.
    """

    unsure: Collection[str] = ()
    never: Collection[str] = ()
    refused: Collection[str] = ()
    begun: Counter[str] = field(default_factory=Counter[str])
    done: Counter[str] = field(default_factory=Counter[str])
    works: dict[str, list[Op]] = field(default_factory=dict[str, list[Op]])
    late: set[str] = field(default_factory=set[str])


@dataclass
class Expected:
    """What must be true in the end."""

    facts: Facts

    lines: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    versions: Counter[str] = field(default_factory=Counter[str])
    letters: Counter[str] = field(default_factory=Counter[str])
    loose: Counter[str] = field(default_factory=Counter[str])
    """How often turns of each label fail: of these, lines remain only in savepoints."""
    failing_calls: set[str] = field(default_factory=set[str])
    """Labels of calls of the client that fail: repeated without a caller they go to the dead letters."""
    replies: dict[str, str] = field(default_factory=dict[str, str])
    shaky: set[str] = field(default_factory=set[str])
    """Labels of calls that may or may not fail, which is written down as if they had not."""
    desk: Counter[str] = field(default_factory=Counter[str])
    """How often each message is sent to the agent that is bound to its process."""
    extra: Expected | None = None
    """What may be there besides, since nobody can tell how many attempts there were."""

    late: bool = False
    """Under a deadline, which may send any publish to the dead letters."""

    limited: Expected | None = None
    alone: bool = False
    """Count each turn as one by itself, that is no nested one."""

    def more(self) -> Expected:
        """What an attempt adds that may have been made, or not."""
        self.extra = self.extra or Expected(self.facts, shaky=self.shaky, late=self.late, alone=self.alone)
        return self.extra

    def more_in_time(self) -> Expected:
        """The same, under a deadline."""
        self.limited = self.limited or Expected(self.facts, shaky=self.shaky, late=True, alone=self.alone)
        return self.limited

    def at_most(self) -> Expected:
        """All that may be there."""
        most = Expected(self.facts)
        parts = [self, *(part.at_most() for part in (self.extra, self.limited) if part)]
        for part in parts:
            most.lines += part.lines
            most.versions += part.versions
            most.letters += part.letters
            most.loose += part.loose
            most.desk += part.desk
        return most


@dataclass
class _Turn:
    agent: str
    saved: bool = False
    above: _Turn | None = None
    attempts: int = 1
    sure: int = 1

    def copy(self) -> _Turn:
        """This turn and those that wait for it."""
        return replace(self, above=self.above and self.above.copy())

    def saved_besides(self, other: _Turn) -> list[str]:
        """The agents whose turns have savepoints here and not in the original."""
        here = [self.agent] * (self.saved and not other.saved)
        return here + (self.above.saved_besides(other.above) if self.above and other.above else [])


def expect(roots: list[Root], facts: Facts) -> Expected:
    """Work out what these messages do, but for those that never came, or perhaps."""
    all = Expected(facts)
    for root in roots:
        if root.label in facts.never:
            continue
        expected = all.more() if root.label in facts.unsure else all
        if root.agent == DESK:
            _to_desk(expected, root.label, root.program)
        elif root.label in facts.refused:
            all.failing_calls.add(root.label)
            _ended_early(all.more(), root.label, root.agent, root.program, None)
        elif root.how in ("cancel", "deadline"):
            expected = expected.more() if root.how == "cancel" else expected.more_in_time()
            _ended_early(expected, root.label, root.agent, root.program, None)
        elif root.how == "call":
            reply = _call(expected, root.label, root.agent, root.program, None)
            expected.replies[root.label] = reply
            if not reply.startswith("ok"):
                expected.failing_calls.add(root.label)
        else:
            _publish(expected, root.label, root.agent, root.program)
    for label, work in facts.works.items():
        _from_desk(all.more_in_time() if label in facts.late else all, label, work)
    return all


def _to_desk(expected: Expected, label: str, work: list[Op]) -> None:
    expected.desk[label] += 1
    expected.facts.works[label] = work
    if expected.late:
        expected.facts.late.add(label)


def _from_desk(expected: Expected, label: str, work: list[Op]) -> None:
    """What the desk has sent for sure is like any message; what it had begun to send has perhaps been sent."""
    outputs, facts = 0, expected.facts
    for number, op in enumerate(work):
        match op:
            case ["publish", agent, program]:
                name, outputs = f"{label}.{outputs}o", outputs + 1
                for attempt in range(facts.begun[name]):
                    _publish(expected if attempt < facts.done[name] else expected.more(), name, agent, program)
            case ["call", agent, program]:
                name = f"{label}.{number}"
                for attempt in range(facts.begun[name]):
                    if attempt < facts.done[name]:
                        _call(expected, name, agent, program, None)
                    else:
                        _ended_early(expected.more(), name, agent, program, None)
            case _:
                pass


def _publish(expected: Expected, label: str, agent: str, program: list[Op]) -> None:
    if agent == DESK:
        _to_desk(expected, label, program)
        return
    # One more when its worker lost it after the last attempt was counted, and before it went to the dead letters.
    attempts = ATTEMPTS + 1 if fails(program) else 1 + stumbles(program)
    if not _turn(expected, label, agent, program, None, attempts=attempts) or expected.late:
        expected.letters[label] += 1


def _call(expected: Expected, label: str, agent: str, program: list[Op], above: _Turn | None) -> str:
    return f"ok:{label}" if _turn(expected, label, agent, program, above) else f"raised:{label}"


def _published(op: Op, agent: str) -> Op:
    """What leaves with the commit: a deferred reply goes round by way of a helper."""
    return ["publish", op[1], [["publish", agent, []]]] if op[0] == "defer" else op


def _turn(
    expected: Expected, label: str, agent: str, program: list[Op], above: _Turn | None, *, attempts: int = 1
) -> bool:
    """One turn; says whether its handler returned. Each attempt makes the calls again that ended in a failure."""
    me = _Turn(agent, above=above, attempts=attempts, sure=min(attempts, ATTEMPTS) if fails(program) else 1)
    good = not fails(program)
    lines, sent, outputs = [label], list[tuple[str, Op]](), 0
    for number, op in enumerate(program):
        match op:
            case ["publish" | "news" | "defer", *_]:
                sent.append((f"{label}.{outputs}o", _published(op, agent)))
                outputs += 1
            case ["later", *_]:
                sent.append((f"{label}.{number}t", op))
            case ["call", callee, work]:
                reply = _called(expected, f"{label}.{number}", callee, work, me)
                lines.append(f"{label}#{number}={reply}")
            case ["hurry" | "ask" as name, callee, work, *_]:
                (_hurried if name == "hurry" else _asked)(expected, f"{label}.{number}", callee, work, me)
                lines.append(f"{label}#{number}={'hurried' if name == 'hurry' else 'asked'}")
            case ["gather", calls]:
                names = [f"{label}.{number}.{branch}" for branch in range(len(calls))]
                replies = [_called(expected, name, *each, me) for name, each in zip(names, calls, strict=True)]
                lines.append(f"{label}#{number}={' '.join(replies)}")
            case _:
                pass
    _end(expected, me, label, lines, good)
    expected.loose[label] += attempts - 1
    for output, op in sent if good else ():
        for receiver in _receivers(op, agent):
            _publish(expected, output, receiver, op[2])
    return good


def _asked(expected: Expected, name: str, callee: str, work: list[Op], me: _Turn) -> None:
    """A call of the desk, which each attempt makes again if it came to nothing."""
    for attempt in range(me.attempts):
        _to_desk(expected.more() if attempt else expected, name, work)


def _hurried(expected: Expected, name: str, callee: str, work: list[Op], me: _Turn) -> None:
    """A call that may have been given up, and then is made again by the next attempt."""
    for _ in range(me.attempts):
        doubtful = me.copy()
        _ended_early(expected.more(), name, callee, work, doubtful)
        expected.more().versions.update(doubtful.saved_besides(me))


def _ended_early(expected: Expected, label: str, agent: str, program: list[Op], above: _Turn | None) -> None:
    """A call that perhaps was handled; what descends from it may outlive the turns that it would be nested in."""
    _call(expected, label, agent, program, above)
    alone = Expected(expected.facts, alone=True)
    _call(alone, label, agent, program, None)
    expected.versions += alone.at_most().versions


def _called(expected: Expected, name: str, callee: str, work: list[Op], me: _Turn) -> str:
    """A call of a turn, as often as it is made for sure, and as often as it may be made besides."""
    if name in expected.facts.refused:
        _hurried(expected, name, callee, work, me)
        return f"any:{name}"
    for _ in range(me.sure if fails(work) else 1):
        reply = _call(expected, name, callee, work, me)
    if stumbles(work):
        expected.shaky.add(name)
    again = me.attempts - me.sure if fails(work) else min(me.attempts - 1, stumbles(work))
    for _ in range(again):
        _call(expected.more(), name, callee, work, me)
    return reply


def _end(expected: Expected, me: _Turn, label: str, lines: list[str], good: bool) -> None:
    if me.agent.startswith("porter"):
        return
    if good:
        expected.lines.update((me.agent, line) for line in lines)
    else:
        expected.loose[label] += 1
    above = me.above
    while above is not None and above.agent != me.agent:
        above = above.above
    if expected.alone:
        expected.versions[me.agent] += 1
    elif good or me.saved:
        if above is None:
            expected.versions[me.agent] += 1
        else:
            above.saved = True


def _receivers(op: Op, sender: str) -> list[str]:
    if op[0] in ("publish", "later"):
        return [op[1]]
    return [agent for agent in (f"{type}/{op[1]}" for type in READERS) if agent != sender]
