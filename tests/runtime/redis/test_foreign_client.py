"""A client written from docs/wire-format.md alone: it knows the server, JSON and a hash, and nothing of the package."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from autogen_core import MessageContext, RoutedAgent, TypeSubscription, event, rpc
from pydantic import BaseModel

from stagebell import RedisRuntime
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LUA = Path(__file__).parents[3] / "stagebell" / "runtime" / "redis" / "lua"


def blake(size: int, *parts: str) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=size).digest()


class ForeignClient:
    def __init__(self, server: redis.Redis, namespace: str) -> None:
        self.server = server
        self.namespace = namespace
        self.replies = f"sb:{{{namespace}:c:foreign-{uuid4().hex[:8]}}}:rep"
        source = (LUA / "send.lua").read_text()
        self.send = re.sub(r"--@include (\w+)\n", lambda m: (LUA / "lib" / f"{m[1]}.lua").read_text(), source)

    def call(self, agent: str, type_name: str, data: Any) -> dict[str, Any]:
        kind = agent.partition("/")[0]
        place = json.loads(self.server.hget(f"sb:{{{self.namespace}}}:reg", f"t:{kind}"))
        number = int.from_bytes(blake(8, agent), "big") % place["p"]
        tag, message_id = f"{self.namespace}:{kind}:{number}", uuid4().hex
        turn, keys = blake(12, message_id, agent).hex(), f"sb:{{{tag}}}:"
        reply = f"s|{self.replies}|{turn}"
        envelope = {
            "v": 1,
            "id": message_id,
            "type": type_name,
            "kind": "send",
            "to": agent,
            "reply": reply,
            "data": data,
        }
        answer = self.server.eval(
            self.send,
            4,
            *(f"sb:{{{self.namespace}}}:reg", f"{keys}in", f"{keys}d:{turn}", f"{keys}own"),
            *("", "600000", "0", f"sb:{{{self.namespace}:w:", tag, turn, agent, json.dumps(envelope)),
        )
        assert answer[0] == b"OK"
        (_, [(_, fields)]) = self.server.xread({self.replies: "0-0"}, block=5000)[0]
        assert fields[b"j"].decode() == turn
        return json.loads(fields[b"e"])


class Question(BaseModel):
    number: int


class Answer(BaseModel):
    double: int


class Doubling(RoutedAgent):
    seen: list[int] = []

    def __init__(self) -> None:
        super().__init__("Doubles.")

    @rpc
    async def on_question(self, message: Question, ctx: MessageContext) -> Answer:
        if message.number < 0:
            raise ValueError("too small")
        return Answer(double=2 * message.number)

    @event
    async def on_event(self, message: Question, ctx: MessageContext) -> None:
        self.seen.append(message.number)


@pytest.fixture
async def client(server: Server, namespace: str) -> AsyncIterator[ForeignClient]:
    async with RedisRuntime(server.url, namespace=namespace) as runtime:
        await Doubling.register(runtime, "doubling", Doubling)
        await runtime.add_subscription(TypeSubscription("questions", "doubling"))
        yield ForeignClient(server.client(), namespace)


async def test_a_call_is_answered(client: ForeignClient) -> None:
    reply = await asyncio.to_thread(client.call, "doubling/a", "Question", {"number": 21})
    assert (reply["kind"], reply["type"], reply["data"]) == ("reply", "Answer", {"double": 42})


async def test_a_failure_says_what_happened(client: ForeignClient) -> None:
    reply = await asyncio.to_thread(client.call, "doubling/a", "Question", {"number": -1})
    assert (reply["kind"], reply["data"]["type"], reply["data"]["text"]) == (
        "failure",
        "builtins:ValueError",
        "too small",
    )


async def test_one_command_publishes(client: ForeignClient) -> None:
    fields = {"type": "Question", "topic": "questions/b", "data": '{"number": 77}'}
    await asyncio.to_thread(client.server.xadd, f"sb:{{{client.namespace}}}:events", fields)
    await eventually(lambda: 77 in Doubling.seen, within=5)
