"""The header of each Lua file against what its typed face sends, and the rules for the files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagebell.runtime.redis.lua_files as lua_files
from stagebell.runtime.redis.connection import Connection
from stagebell.runtime.redis.joint import Arg
from stagebell.runtime.redis.keys import EventsKeys, PartitionKeys
from stagebell.runtime.redis.lua_files import SCRIPTS
from stagebell.runtime.redis.requests import Delivery, LeftOpen, ReplyTo, Turn
from stagebell.runtime.redis.script_calls import with_source
from stagebell.runtime.redis.scripts import Scripts
from stagebell.runtime.redis.timer_scripts import DueTimer
from tests.support.servers import Server

FOLDER = Path(lua_files.__file__).parent / "lua"
A = PartitionKeys("headers", "a", 0)
TURN = Turn(A, "tok", "agent", "entry_id", "turn_id")
OUT = Delivery(A, "out_turn_id", "agent", b"envelope")
CALLEE = Delivery(A, "callee_turn_id", "callee_agent", b"envelope")
TURN_OF_TIMER = Delivery(A, "turn_id", "agent", b"envelope")
REPLY = ReplyTo("journal", "reply_key", "reply_own", "reply_field", "reply_turn", "reply_tag")

FLAGS = {
    **dict.fromkeys(("send", "schedule"), "#!lua"),
    **dict.fromkeys(("absent", "idle", "due", "upcoming"), "#!lua flags=no-writes"),
}

# Each text argument is given its own name, so that a text in a wrong place is seen.
REQUESTS: dict[str, Callable[[Scripts], Any]] = {
    "acquire": lambda s: s.acquire(A, worker="worker", nonce="nonce", ttl_ms=1, now="now"),
    "renew": lambda s: s.renew(A, token="tok", ttl_ms=1, now="now"),
    "release": lambda s: s.release(A, token="tok", hold_ms=1, turns=[("agent", "turn_id")], now="now"),
    "gone": lambda s: s.gone(A, worker="worker", heirs=["heir"]),
    "break_hold": lambda s: s.break_hold(A, token="tok", agent="agent", now="now"),
    "drop_hold": lambda s: s.drop_hold(TURN),
    "send": lambda s: s.send([OUT], after=["after"]),
    "begin": lambda s: s.begin(TURN),
    "call": lambda s: s.call(TURN, "k", CALLEE, digest="digest", known_replies=0, known_savepoints=0),
    "commit": lambda s: s.commit(
        TURN,
        version=1,
        state=b"state",
        reply_to=REPLY,
        reply=b"reply",
        outputs=[OUT],
        left_open=LeftOpen(("k",), "left_open_stream"),
    ),
    "fail": lambda s: s.fail(
        TURN,
        has_state=True,
        reply_to=REPLY,
        failure=b"reply",
        dead_letter="reason",
        traceback="traceback",
        left_open=LeftOpen(("k",), "left_open_stream"),
        wish="wish",
    ),
    "record": lambda s: s.record(TURN, "name", "value", nonce="nonce"),
    "retry": lambda s: s.retry(TURN, attempt="attempt", forget=("k",)),
    "requeue": lambda s: s.requeue(A, "letter_id", Delivery(A, "turn_id", "agent", b"envelope")),
    "requeue_event": lambda s: s.requeue_event(EventsKeys("headers"), "letter_id"),
    "withdraw": lambda s: s.withdraw(
        A, entry_id="entry_id", turn_id="turn_id", reply_to=REPLY._replace(field="k"), failure=b"failure"
    ),
    "end_call": lambda s: s.end_call(
        A,
        turn_id="turn_id",
        why="cancel",
        entry_id="entry_id",
        caller=TURN._replace(turn_id="caller_turn"),
        k="k",
        failure=b"failure",
        wish="wish",
    ),
    "absent": lambda s: s.absent(A.inbox, [("entry_id", "turn_id")]),
    "idle": lambda s: s.idle([A.inbox]),
    "fanout": lambda s: s.fanout(
        EventsKeys("headers"),
        token="tok",
        entry_id="entry_id",
        digest="digest",
        deliveries=[OUT],
        dead_letter="reason",
        after="after",
    ),
    "ring": lambda s: s.ring(A, kind="kind", entry_id="entry_id", turn_id="turn_id", payload=b"payload"),
    "schedule": lambda s: s.schedule(A, timer="timer", nonce="nonce", when="when", message=b"message", now="now"),
    "unschedule": lambda s: s.unschedule(A, timer="timer"),
    "due": lambda s: s.due(A, count=1, now="now"),
    "upcoming": lambda s: s.upcoming([A], now="now"),
    "promote": lambda s: s.promote("tok", DueTimer("timer", 1, b""), b"nonce", TURN_OF_TIMER, now="now"),
    "beat": lambda s: s.beat(worker="worker", described={"field": "value"}, expires_ms=1, now="now"),
    "probe": lambda s: s.probe(["command"]),
    "register": lambda s: s.register([("set", "field", "value")]),
    "claim_type": lambda s: s.claim_type(field="field", worker="worker", value="value", timeout_ms=1, now="now"),
}


def header(name: str) -> tuple[list[str], list[str]]:
    """The names of KEYS and ARGV; what repeats ("then per …:", "k…") stands once."""
    text = " ".join(line.removeprefix("--") for line in SCRIPTS[name].text.splitlines()[1:])
    found = re.search(r"\bKEYS\b(.*?)\bARGV\b(.*?)\breturns\b", text)
    assert found, f"{name}.lua does not say its KEYS, ARGV and what it returns"
    keys, argv = (re.sub(r",? then per \w+:", " ", part).split() for part in found.groups())
    return keys, [word.rstrip(",…") for word in argv]


async def sent(server: Server, name: str) -> tuple[list[Arg], list[Arg]]:
    """KEYS and ARGV as they reach a server (one that has no scripts asks for the whole command)."""
    connection = await Connection.open(server.url)
    scripts = Scripts(connection, "headers")
    await connection.execute("SCRIPT", "FLUSH")
    seen: list[tuple[Arg, ...]] = []

    def record(args: tuple[Arg, ...]) -> tuple[Arg, ...]:
        seen.append(args)
        return ("ECHO", "no script runs")

    connection.on_noscript = record
    await asyncio.wait([REQUESTS[name](scripts)], timeout=10)
    connection.close()
    ((_, sha, number, *rest),) = seen
    assert sha == SCRIPTS[name].sha
    assert isinstance(number, int)
    keys, arguments = rest[:number], rest[number:]
    if SCRIPTS[name].joint:  # one request: its numbers of keys and of arguments come first
        assert arguments[:2] == [len(keys), len(arguments) - 2]
        arguments = arguments[2:]
    return keys, arguments


@pytest.mark.integration
@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_header_names_what_is_sent(server: Server, name: str) -> None:
    keys, argv = header(name)
    sent_keys, sent_argv = await sent(server, name)
    assert len(sent_keys) == len(keys), (keys, sent_keys)
    assert len(sent_argv) == len(argv), (argv, sent_argv)
    for place, (word, value) in enumerate(zip(argv, sent_argv, strict=True)):
        text = value.decode() if isinstance(value, bytes) else value
        assert text not in argv or text == word, f"ARGV {place + 1} is {word}, not {text}"


@pytest.mark.unit
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_file_keeps_to_the_rules(name: str) -> None:
    script = SCRIPTS[name]
    lines = script.text.splitlines()
    assert lines[0] == FLAGS.get(name, "#!lua flags=allow-oom")
    assert script.source.startswith(lines[0])
    assert "@include" not in script.source
    assert len(lines) < 100
    assert max(map(len, lines)) <= 120


@pytest.mark.unit
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_key_and_argument_is_read(name: str) -> None:
    """The highest place that a script reads by number is not beyond its header."""
    keys, argv = header(name)
    for array, words in (("KEYS", keys), ("ARGV", argv)):
        places = [int(n) for n in re.findall(rf"{array}\[(\d+)\]", SCRIPTS[name].text)]
        assert max(places, default=0) <= len(words)


@pytest.mark.unit
def test_no_file_is_left_out() -> None:
    assert {path.stem for path in FOLDER.glob("*.lua")} == set(SCRIPTS)
    used = {name for script in SCRIPTS.values() for name in re.findall(r"^--@include (\w+)", script.text, re.M)}
    assert {path.stem for path in (FOLDER / "lib").glob("*.lua")} == {*used, "each"}


@pytest.mark.unit
@pytest.mark.parametrize(
    "name",
    [
        "send",
        "call",
        "commit",
        "fail",
        "fanout",
        "withdraw",
        "record",
        "retry",
        "requeue",
        "requeue_event",
        "schedule",
        "unschedule",
        "promote",
    ],
)
def test_what_may_fail_comes_before_the_first_write(name: str) -> None:
    """I16: After the line that says so, no reading that could meet a wrong type and no answer but the last."""
    body = SCRIPTS[name].text
    after = body.split("nothing below can fail")[-1] if "nothing below" in body else body.split("XDEL")[-1]
    assert not re.search(r"\b(field|count|expect|standing|entry|refuse)\(", after)


@pytest.mark.integration
async def test_a_synchronous_client_runs_the_same_scripts(server: Server, namespace: str) -> None:
    client: Any = server.client()
    keys = PartitionKeys(namespace, "a", 0)
    for name in ("acquire", "renew"):
        assert client.script_load(SCRIPTS[name].source) == SCRIPTS[name].sha
    token = client.evalsha(SCRIPTS["acquire"].sha, 2, keys.own, keys.hold, "w1", "n", 3000, "")[1]
    assert client.evalsha(SCRIPTS["renew"].sha, 1, keys.own, token, 3000, "") == 1
    client.delete(keys.own)
    client.close()


@pytest.mark.unit
def test_a_forgotten_script_is_sent_with_its_source() -> None:
    script = SCRIPTS["renew"]
    assert with_source(("EVALSHA", script.sha, 1, "k", "a")) == ("EVAL", script.source, 1, "k", "a")
