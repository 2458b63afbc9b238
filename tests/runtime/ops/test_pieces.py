"""The pure parts of the command line, and what it says of itself."""

from __future__ import annotations

import inspect
import io
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stagebell import RedisRuntime
from stagebell.errors import MessageTooLarge
from stagebell.runtime.ops.cli import main
from stagebell.runtime.ops.console import CommandFailed, one_line
from stagebell.runtime.ops.lines import Cutter, EventMaker, Line
from stagebell.runtime.ops.restarts import next_pause
from stagebell.runtime.ops.settings import Settings
from stagebell.runtime.ops.setups import split_target
from stagebell.runtime.ops.tables import records, show, span
from stagebell.runtime.redis.overview import EventsView, Overview, PartitionView, TypeView, WorkerView
from stagebell.runtime.redis.settings import RedisOptions, RedisSettings

pytestmark = pytest.mark.unit


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 0
    return capsys.readouterr().out


# -- settings


def test_settings_come_from_the_environment() -> None:
    found = {"STAGEBELL_REDIS": "redis://h:1", "STAGEBELL_FOLDER": "data", "STAGEBELL_LEASE": "1.5"}
    settings = Settings.from_environment(found)
    assert settings == Settings(redis="redis://h:1", folder=Path("data"), lease=1.5)


def test_empty_variables_are_as_if_not_set() -> None:
    assert Settings.from_environment({"STAGEBELL_REDIS": "", "STAGEBELL_NAMESPACE": ""}) == Settings()


def test_what_is_given_comes_first() -> None:
    settings = Settings.from_environment({"STAGEBELL_NAMESPACE": "a", "STAGEBELL_LEASE": "9"})
    assert settings.having(namespace="b", lease=None) == Settings(namespace="b", lease=9.0)


def test_another_process_reads_the_same_settings() -> None:
    settings = Settings(redis="redis://:p@h:1/2", namespace="n", folder=Path("f"), stop_grace=0.5)
    assert Settings.from_environment(settings.to_environment()) == settings
    assert Settings.from_environment(Settings().to_environment()) == Settings()


def test_every_setting_of_a_runtime_is_one_here_with_the_same_default() -> None:
    assert RedisSettings(**Settings().options) == RedisSettings()
    assert set(RedisOptions.__annotations__) == {each.name for each in fields(RedisSettings)}
    taken = inspect.signature(RedisRuntime).parameters
    for name in ("cancel_grace", "max_call_depth", "warn_after"):
        assert getattr(Settings(), name) == taken[name].default


def test_every_setting_can_be_read() -> None:
    given: dict[str, Any] = {}
    for each in fields(Settings):
        default = getattr(Settings(), each.name)
        match default:
            case bool():
                given[each.name] = True
            case int() | float():
                given[each.name] = default + 7
            case _:
                given[each.name] = {"redis": "redis://h:1", "folder": Path("f"), "when_full": "raise"}.get(
                    each.name, "n"
                )
    settings = Settings(**given)
    assert Settings.from_environment(settings.to_environment()) == settings
    for text, value in (("yes", True), ("1", True), ("False", False), ("no", False)):
        found = Settings.from_environment({"STAGEBELL_CANCEL_WHEN_CALLER_GONE": text})
        assert found.cancel_when_caller_gone is value


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"STAGEBELL_INBOX_LIMIT": "1.5"}, "STAGEBELL_INBOX_LIMIT must be a whole number, not '1.5'"),
        ({"STAGEBELL_CANCEL_WHEN_CALLER_GONE": "perhaps"}, "CALLER_GONE must be true or false"),
        ({"STAGEBELL_WHEN_FULL": "drop"}, 'when_full must be "wait" or "raise"'),
        ({"STAGEBELL_MAX_CALL_DEPTH": "0"}, "max_call_depth must be a whole number of calls, from 1 on, not 0"),
        ({"STAGEBELL_LEASE": "long"}, "STAGEBELL_LEASE must be a number of seconds"),
        ({"STAGEBELL_LEASE": "-1"}, "lease must be a number of seconds, from 0.01 on, not -1.0"),
        ({"STAGEBELL_NAMESPACE": "a/b"}, "namespace 'a/b'"),
        ({"STAGEBELL_REDIS": "http://u:hush@h"}, "URL must look like"),
        ({"STAGEBELL_REDIS": "redis://:hush/x@h:1"}, "URL must look like"),
    ],
)
def test_settings_that_make_no_sense(found: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError) as caught:
        Settings.from_environment(found)
    assert says in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_password_is_in_no_text() -> None:
    settings = Settings(redis="redis://me:p%40ss@h:1")
    assert "40ss" not in repr(settings)
    assert settings.server == "h:1"
    assert settings.conceal("AUTH me p@ss, of redis://me:p%40ss@h:1") == "AUTH me ***, of redis://me:***@h:1"


# -- restarts


def test_a_child_that_dies_at_once_waits_longer_each_time() -> None:
    pauses = [0.0]
    for _ in range(8):
        pauses.append(next_pause(0.5, pauses[-1]))
    assert pauses[1:] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_child_that_lived_for_a_while_is_started_at_once() -> None:
    assert next_pause(10.0, 6.4) == 0.0


# -- lines


def cut(*chunks: bytes) -> list[Line]:
    cutter = Cutter()
    lines = [line for chunk in chunks for line in cutter.feed(chunk)]
    return [*lines, *cutter.end()]


def test_lines_are_cut_wherever_chunks_end() -> None:
    whole = b'\xef\xbb\xbf{"a":1}\r\n\n  \n{"b":2}\n{"c":3}'
    wanted = [Line(1, b'{"a":1}'), Line(4, b'{"b":2}'), Line(5, b'{"c":3}')]
    for size in range(1, len(whole) + 1):
        assert cut(*(whole[at : at + size] for at in range(0, len(whole), size))) == wanted


def test_no_lines() -> None:
    assert cut(b"") == cut(b"\n \n") == []


def test_the_fields_of_an_event() -> None:
    assert EventMaker("a/b", "T").fields(b"1", 3) == ["type", "T", "topic", "a/b", "data", b"1"]
    assert EventMaker("a/b", "T", "x").fields(b"1", 3)[-2:] == ["id", "x-3"]
    assert EventMaker("a/b", "T", "x").fields(b"1")[-2:] == ["id", "x"]


def test_an_event_that_is_too_large() -> None:
    with pytest.raises(MessageTooLarge):
        EventMaker("a/b", "T").fields(b'"' + b"x" * 1024 * 1024 + b'"')


# -- texts


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0 s"), (48, "48 s"), (185, "3 min 5 s"), (7800, "2 h 10 min"), (10**6, "11 d 13 h")],
)
def test_spans_of_time(seconds: float, text: str) -> None:
    assert span(int(seconds * 1000)) == text


def test_the_tables_of_a_namespace_with_troubles() -> None:
    worker = WorkerView("w1", "host", 7, 65_000, 9_000, False, ["desk"], 0, 2, 1, {"clerk/ada": 3})
    part = PartitionView("clerk", 3, "w0", 0, 1234, 1, 5, 6, 7)
    types = [TypeView("clerk", [], "", [part]), TypeView("desk", ["w1"], "w1", [])]
    overview = Overview("shop", 0, [worker], types, EventsView("", 0, 8, 9, 10, ["Note"]))
    console = Console(width=160, file=io.StringIO(), highlight=False)
    show(overview, "h:1", console, every_partition=False)
    assert isinstance(console.file, io.StringIO)
    rows = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert "namespace shop at h:1" in rows
    assert "w1 host 7 1 min 5 s 9.0 s ago 0 desk 2 1" in rows
    assert "paused agents: 1 (a newer program wrote to them: upgrade their workers)" in rows
    assert "clerk/ada 3 w1" in rows
    assert "clerk none 1 1 1,234 1 5 6 7" in rows
    assert "desk (in worker w1) 1 - 0 0 0 0 0 0" in rows
    assert "clerk:3 w0 expired 1,234 1 5 6 7" in rows
    assert "sb:{shop}:events none - 8 9 10" in rows


def test_an_error_becomes_one_line() -> None:
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(ValueError()) == "ValueError"
    assert len(one_line("x" * 5000)) == 600


def test_a_long_error_is_cut_in_its_middle() -> None:
    text = one_line(f"the till is stuck: {'drawer ' * 900}: pull it")
    assert (text[:18], text[-9:], len(text)) == ("the till is stuck:", ": pull it", 600)


@pytest.mark.parametrize("terminal", [True, False])
def test_records_lose_nothing_on_a_narrow_terminal(terminal: bool) -> None:
    reason = "ValueError: " + "the till is stuck, " * 12 + "pull the drawer (--help says how)"
    console = Console(width=80, file=io.StringIO(), highlight=False, force_terminal=terminal, color_system=None)
    records(console, [(["clerk:3/17-0", "clerk/ada", "Note", "3 min 5 s ago", "3 attempts"], [reason])])
    assert isinstance(console.file, io.StringIO)
    first, *rest = console.file.getvalue().splitlines()
    assert first == "clerk:3/17-0  clerk/ada  Note  3 min 5 s ago  3 attempts"
    assert " ".join(" ".join(rest).split()) == reason
    assert all(len(line) <= 80 for line in rest) if terminal else len(rest) == 1


@pytest.mark.parametrize("target", ["", "a", ":b", "a:", "a/b.py:c", "a.py:c", "a:b c"])
def test_targets_that_name_no_function(target: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        split_target(target)
    assert caught.value.code == 2


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "--help")
    assert all(name in text for name in ("worker", "publish", "ps"))
    assert "..." not in text.partition("Commands")[2]
    assert said(capsys) == text


@pytest.mark.parametrize("command", ["worker", "publish", "ps"])
def test_help_of_each_command_names_the_variables(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, command, "--help")
    assert all(name in text for name in ("STAGEBELL_REDIS", "STAGEBELL_NAMESPACE", "STAGEBELL_FOLDER"))
    assert "lifeline" not in text


def test_help_of_the_worker_has_an_option_for_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "worker", "--help")
    for each in fields(Settings):
        assert f"--{each.name.replace('_', '-')}" in text
        assert f"[STAGEBELL_{each.name.upper()}]" in text
    groups = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert groups[:2] == ["Arguments:", "Options:"]
    assert len(groups) == 6


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version").startswith("stagebell")
