"""The agents of the simulation: each carries out the program that a message brings, and writes down what it saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from autogen_core import AgentId, MessageContext, RoutedAgent, TopicId, message_handler
from pydantic import BaseModel

from stagebell import DeferredReply, defer_reply

Op = list[Any]
"""One step of a program:

["publish", agent, program]         to one agent, by its own topic
["news", key, program]              to every agent that subscribes to the news
["call", agent, program]            and wait for the reply
["gather", [[agent, program], …]]   several calls at once
["defer", agent]                    the reply comes later, on a message that this agent sends back
["answer", handle, reply]           give a deferred reply
["sleep", seconds]
["raise"]
["stumble", times]                  raise when it comes here so many times at first
"""

NEWS = "news"


class Work(BaseModel):
    """A program, and a label that no other message has."""

    label: str
    program: list[Any]


STUMBLES: Counter[str] = Counter()
"""How often each message has stumbled in this schedule."""


class Poison(Exception):
    """What a handler raises on purpose."""


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
        outputs = 0
        for number, op in enumerate(message.program):
            match op:
                case ["publish", agent, program]:
                    await self._publish(TopicId(*agent.split("/")), f"{message.label}.{outputs}o", program)
                    outputs += 1
                case ["news", key, program]:
                    await self._publish(TopicId(NEWS, key), f"{message.label}.{outputs}o", program)
                    outputs += 1
                case ["call", agent, program]:
                    reply = await self._call(agent, f"{message.label}.{number}", program)
                    self.note(f"{message.label}#{number}={reply}")
                case ["gather", calls]:
                    labels = [f"{message.label}.{number}.{branch}" for branch in range(len(calls))]
                    pairs = zip(labels, calls, strict=True)
                    replies = await asyncio.gather(*(self._call(agent, label, work) for label, (agent, work) in pairs))
                    self.note(f"{message.label}#{number}={' '.join(replies)}")
                case ["defer", agent]:
                    back = ["publish", str(self.id), [["answer", str(defer_reply()), f"ok:{message.label}"]]]
                    await self._publish(TopicId(*agent.split("/")), f"{message.label}.{outputs}o", [back])
                    return None
                case ["answer", handle, reply]:
                    await DeferredReply(handle).answer(reply)
                case ["sleep", seconds]:
                    await asyncio.sleep(seconds)
                case ["stumble", times] if STUMBLES[message.label] < times:
                    STUMBLES[message.label] += 1
                    raise Poison(message.label)
                case ["stumble", _]:
                    pass
                case ["raise"]:
                    raise Poison(message.label)
                case _:
                    raise AssertionError(op)
        return f"ok:{message.label}"

    async def _publish(self, topic: TopicId, label: str, program: list[Op]) -> None:
        await self.publish_message(Work(label=label, program=program), topic)

    async def _call(self, agent: str, label: str, program: list[Op]) -> str:
        try:
            reply: str = await self.send_message(Work(label=label, program=program), AgentId.from_str(agent))
        except Poison as error:
            return f"raised:{error}"
        return reply


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
