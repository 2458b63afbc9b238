"""The agents of the simulation: each carries out the program that a message brings, and writes down what it saw."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from autogen_core import AgentId, MessageContext, RoutedAgent, TopicId, message_handler
from pydantic import BaseModel

from stagebell import DeferredReply, agent_options, defer_reply, migrates
from stagebell.errors import RuntimeNotRunning, StateMismatch, Undeliverable
from stagebell.runtime.engine.journal import record

Op = list[Any]
"""One step of a program:

["publish", agent, program]         to one agent, by its own topic
["news", key, program]              to every agent that subscribes to the news
["call", agent, program]            and wait for the reply
["hurry", agent, program, seconds]   a call that is given up after that time
["gather", [[agent, program], …]]   several calls at once
["defer", agent]                    the reply comes later, on a message that this agent sends back
["answer", handle, reply]           give a deferred reply
["later", agent, program, seconds, how]   a timer for the agent, or (how = "topic") for its topic
["sleep", seconds]
["raise"]
["stumble", times]                  raise when it comes here so many times at first
["record"]                          keep a new value with the turn, unless there is one already
["ask", agent, program]             call the agent that is bound to its process; it may be gone
"""

AGENTS = ["clerk/a", "porter/a", "clerk/b", "clerk/c", "porter/b", "clerk/d"]
"""Those that may be called, in one order; see `programs`."""
NEWS, DESK, ASK = "news", "desk/a", "ask"


class Work(BaseModel):
    """A program, and a label that no other message has."""

    label: str
    program: list[Any]


STUMBLES: Counter[str] = Counter()
"""How often each message has stumbled in this schedule."""
RECORDS: dict[str, set[str]] = defaultdict(set)
"""Which values each turn has seen in each place where it keeps one."""
ASKED: dict[str, set[str]] = defaultdict(set)
"""How each call of the desk has ended, for those that made it: "ok:…", "raised:…", or "gone"."""
REFUSED: set[str] = set()
"""Labels of calls that ended since a worker could not read the callee's state, which a newer one had written."""


class Poison(Exception):
    """What a handler raises on purpose."""


class Run:
    """Where a handler is in its program."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.number = 0
        self.later = False
        self._outputs = itertools.count()

    def output(self) -> str:
        """The label of what it publishes next."""
        return f"{self.label}.{next(self._outputs)}o"


class Porter(RoutedAgent):
    """Carries programs out and remembers nothing."""

    def __init__(self) -> None:
        super().__init__("a porter")

    def note(self, line: str) -> None:
        """Nothing."""

    @message_handler
    async def on_work(self, message: Work, ctx: MessageContext) -> str | None:
        """Carry out the program."""
        self.note(message.label)
        run = Run(message.label)
        for number, (name, *rest) in enumerate(message.program):
            run.number = number
            await getattr(self, f"do_{name}")(run, *rest)
            if run.later:
                return None
        return f"ok:{message.label}"

    async def do_publish(self, run: Run, agent: str, program: list[Op]) -> None:
        """Publish."""
        await self._publish(TopicId(*agent.split("/")), run.output(), program)

    async def do_news(self, run: Run, key: str, program: list[Op]) -> None:
        """Publish to all subscribers."""
        await self._publish(TopicId(NEWS, key), run.output(), program)

    async def do_call(self, run: Run, agent: str, program: list[Op]) -> None:
        """Call, and note the reply."""
        reply = await self._call(agent, f"{run.label}.{run.number}", program)
        self.note(f"{run.label}#{run.number}={reply}")

    async def do_hurry(self, run: Run, agent: str, program: list[Op], seconds: float) -> None:
        """Call, with little patience; whether it was enough is not noted."""
        label = f"{run.label}.{run.number}"
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._call(agent, label, program)
        self.note(f"{run.label}#{run.number}=hurried")

    async def do_gather(self, run: Run, calls: list[tuple[str, list[Op]]]) -> None:
        """Call several at once, and note the replies."""
        labels = [f"{run.label}.{run.number}.{branch}" for branch in range(len(calls))]
        pairs = zip(labels, calls, strict=True)
        replies = await asyncio.gather(*(self._call(agent, label, work) for label, (agent, work) in pairs))
        self.note(f"{run.label}#{run.number}={' '.join(replies)}")

    async def do_ask(self, run: Run, agent: str, program: list[Op]) -> None:
        """Call the desk; how that ended is not noted here."""
        label = f"{run.label}.{run.number}"
        try:
            outcome = await self._call(agent, label, program)
        except (Undeliverable, RuntimeNotRunning):  # or it was just about to send something when it was stopped
            outcome = "gone"
        ASKED[label].add(outcome)
        self.note(f"{run.label}#{run.number}=asked")

    async def do_defer(self, run: Run, agent: str) -> None:
        """Let another agent send the handle back, and answer then."""
        back = ["publish", str(self.id), [["answer", str(defer_reply()), f"ok:{run.label}"]]]
        await self._publish(TopicId(*agent.split("/")), run.output(), [back])
        run.later = True

    async def do_later(self, run: Run, agent: str, program: list[Op], seconds: float, how: str) -> None:
        """Set a timer."""
        id = AgentId.from_str(agent)
        to = TopicId(id.type, id.key) if how == "topic" else id
        label = f"{run.label}.{run.number}t"
        await self.runtime.schedule(Work(label=label, program=program), to, delay=seconds)

    async def do_answer(self, run: Run, handle: str, reply: str) -> None:
        """Give a deferred reply."""
        await DeferredReply(handle).answer(reply)

    async def do_sleep(self, run: Run, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)

    async def do_record(self, run: Run) -> None:
        """Keep a value; note which one it is."""
        new = str(random.random())
        RECORDS[f"{run.label}#{run.number}"].add(await record(f"at {run.number}", new) or new)

    async def do_raise(self, run: Run) -> None:
        """Fail."""
        raise Poison(run.label)

    async def do_stumble(self, run: Run, times: int) -> None:
        """Fail at first."""
        if STUMBLES[run.label] < times:
            STUMBLES[run.label] += 1
            raise Poison(run.label)

    async def _publish(self, topic: TopicId, label: str, program: list[Op]) -> None:
        await self.publish_message(Work(label=label, program=program), topic)

    async def _call(self, agent: str, label: str, program: list[Op]) -> str:
        try:
            reply: str = await self.send_message(Work(label=label, program=program), AgentId.from_str(agent))
        except Poison as error:
            return f"raised:{error}"
        except StateMismatch as error:
            if not names_both_versions(error):
                raise
            REFUSED.add(label)
            return f"refused:{label}"
        return reply


def names_both_versions(error: StateMismatch) -> bool:
    """True when the error says what is stored and what the worker reads."""
    return (error.stored_version, error.version) == (2, 1) and "version 2" in str(error) and "version 1" in str(error)


class Clerk(Porter):
    """Carries programs out and keeps a log in its state."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def note(self, line: str) -> None:
        """Into the log."""
        self.log.append(line)

    async def save_state(self) -> Mapping[str, Any]:
        """The log."""
        return {"log": self.log}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """The log."""
        self.log = list(state["log"])


@agent_options(state_version=2, state_type="Clerk")
class Clerk2(Clerk):
    """The clerk of the next program: what was its log is its lines now."""

    @staticmethod
    @migrates(from_version=1)
    def _log_became_lines(state: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"lines": state["log"]}

    async def save_state(self) -> Mapping[str, Any]:
        """The lines."""
        return {"lines": self.log}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """The lines."""
        self.log = list(state["lines"])
