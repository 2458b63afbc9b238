"""Exception ↔ bytes: a caller gets what the handler raised, or an error that says what it was."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from typing import Any

import pytest
from autogen_core import AgentId
from autogen_core.exceptions import CantHandleException
from autogen_core.tool_agent import InvalidToolArgumentsException, ToolException
from hypothesis import given
from hypothesis import strategies as st

from stagebell import errors
from stagebell.errors import MalformedMessage, RemoteHandlerError
from stagebell.messages.failure import RemoteTraceback, describe, restore
from tests.messages.messages_for_tests import CardDeclined, Odd

pytestmark = pytest.mark.unit

_alice = AgentId("writer", "alice")
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class Closed(BaseException):
    """A base exception of a user."""


class Stop(Exception, SystemExit):
    """An exception that would end the process."""


class Tuples(Exception):
    """Attributes of which only some can travel."""

    def __init__(self) -> None:
        super().__init__("tuples")
        self.plain, self.pair, self.open_file = [1, {"a": None}], (1, 2), sys.stdout


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such order: 7"),
        ValueError(),
        ValueError(""),
        KeyError("k"),
        RuntimeError("a", 2, None),
        FileNotFoundError(2, "No such file or directory", "/x"),
        OSError(18, "Invalid cross-device link", "/x", None, "/y"),
        ConnectionRefusedError(111, "refused"),
        TimeoutError(),
        asyncio.CancelledError(),
        asyncio.CancelledError("stop"),
        ModuleNotFoundError("No module named 'x'"),
        CardDeclined(7, reason="expired"),
        CantHandleException("no handler"),
        ToolException("c1", "failed", "search"),
        InvalidToolArgumentsException(call_id="c1", content="bad", name="search"),
        errors.Undeliverable(_alice, "nobody"),
        errors.CantHandle(_alice, "Order"),
        errors.DeadLettered(_alice, "m1", "too often"),
        errors.CallCycleError([_alice, AgentId("editor", "bob"), _alice]),
        errors.CallDepthExceeded(_alice, 101, 100),
        errors.RuntimeNotRunning("stopped"),
        errors.NonDeterministicReplay(_alice, "0.1"),
        errors.UnregisteredType("Order"),
        errors.UnknownVersion(2),
        errors.MessageTooLarge("Order", 2, 1),
        errors.ServerUnavailable("gone"),
        errors.ServerNotFound("no valkey-server"),
        errors.Busy(_alice, 10),
        errors.RemoteHandlerError("app:Broken", "it broke", "Traceback …"),
    ],
)
def test_an_exception_comes_back_with_its_text_and_attributes(error: BaseException) -> None:
    restored = restore(describe(error))
    assert type(restored) is type(error)
    assert str(restored) == str(error)
    attributes = dict(vars(restored))
    if not isinstance(error, RemoteHandlerError):
        assert attributes.pop("remote_traceback") == ""
    assert attributes == vars(error)


def test_the_number_of_an_os_error_comes_back() -> None:
    restored = restore(describe(FileNotFoundError(2, "No such file", "/x")))
    assert isinstance(restored, OSError)
    assert (restored.errno, restored.filename) == (2, "/x")


def test_attributes_that_cannot_travel_stay_behind() -> None:
    restored: Any = restore(describe(Tuples()))
    assert type(restored) is Tuples
    assert restored.plain == [1, {"a": None}]
    assert not hasattr(restored, "pair")
    assert not hasattr(restored, "open_file")


def test_arguments_that_cannot_travel_become_the_text() -> None:
    restored = restore(describe(ValueError(_alice)))
    assert type(restored) is ValueError
    assert restored.args == ("writer/alice",)


def test_notes_come_back() -> None:
    error = ValueError("x")
    error.add_note("while reading order 7")
    assert restore(describe(error)).__notes__ == ["while reading order 7"]


def test_a_printed_traceback_shows_the_far_side() -> None:
    try:
        raise CardDeclined(7, reason="expired")
    except CardDeclined as error:
        far_side = traceback.format_exc()
        data = describe(error, far_side)
    restored: Any = restore(data)
    assert restored.remote_traceback == far_side
    assert isinstance(restored.__cause__, RemoteTraceback)
    try:
        raise restored
    except CardDeclined:
        printed = traceback.format_exc()
    assert far_side in printed
    assert "direct cause" in printed


def test_a_second_hop_keeps_the_first_traceback() -> None:
    first = restore(describe(ValueError("x"), "Traceback one\n"))
    second: Any = restore(describe(first, "".join(traceback.format_exception(first))))
    assert "Traceback one" in second.remote_traceback
    assert type(second) is ValueError


def _local_error() -> Exception:
    class Local(Exception):
        pass

    return Local("from inside")


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(1),
        StopAsyncIteration(),
        Closed("base"),
        Stop("stop"),
        Odd(object()),
        KeyError(("a", 1)),
        _local_error(),
        ExceptionGroup("many", [ValueError("x")]),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        SyntaxError("bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_cannot_or_must_not_be_raised_becomes_a_remote_handler_error(error: BaseException) -> None:
    restored = restore(describe(error, "Traceback …"))
    assert type(restored) is RemoteHandlerError
    assert restored.type_name == f"{type(error).__module__}:{type(error).__qualname__}"
    assert restored.text == str(error)
    assert restored.remote_traceback == "Traceback …"
    assert isinstance(restored.__cause__, RemoteTraceback)


@pytest.mark.parametrize(
    "name",
    [
        "this_module_is_not_loaded:Error",
        "antigravity:Error",
        "builtins:print",
        "builtins:dict",
        "builtins:",
        "builtins",
        ":",
        "os:system",
        "sys:modules.os.system",
        f"{__name__}:_local_error.<locals>.Local",
        f"{__name__}:asyncio.sys",
    ],
)
def test_nothing_is_imported_or_called_by_name(name: str) -> None:
    loaded = set(sys.modules)
    restored = restore(json.dumps({"type": name, "text": "x"}).encode())
    assert type(restored) is RemoteHandlerError
    assert restored.type_name == name
    assert set(sys.modules) == loaded


def test_no_init_runs_and_dunder_attributes_are_ignored() -> None:
    fields = {
        "type": f"{CardDeclined.__module__}:CardDeclined",
        "text": "order 7: expired",
        "args": ["order 7: expired"],
        "attributes": {"order": 7, "__class__": "x", "__cause__": "y"},
    }
    restored = restore(json.dumps(fields).encode())
    assert type(restored) is CardDeclined
    assert vars(restored) == {"order": 7, "remote_traceback": ""}


def test_a_broken_str_is_described_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    restored = restore(describe(Broken()))
    assert type(restored) is RemoteHandlerError
    assert "RuntimeError" in restored.text


def test_a_huge_failure_is_cut() -> None:
    error = ValueError("x" * 10_000_000)
    error.__dict__.update({f"a{i}": "y" * 16_000 for i in range(100)}, small=1)
    error.add_note("z" * 1_000_000)
    data = describe(error, "head" + "t" * 10_000_000 + "tail")
    assert len(data) < 200_000
    restored: Any = restore(data)
    assert restored.remote_traceback.endswith("tail")
    assert restored.args == ("x" * 32_768,)
    assert type(restored) is ValueError


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"type":"builtins:ValueError"}',
        b'{"text":"x"}',
        b'{"type":"","text":"x"}',
        b'{"type":1,"text":"x"}',
        b'{"type":"builtins:ValueError","text":"x","args":"x"}',
        b'{"type":"builtins:ValueError","text":"x","attributes":[]}',
        b'{"type":"builtins:ValueError","text":"x","traceback":1}',
    ],
)
def test_bad_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        restore(data)


_classes = st.sampled_from(
    [ValueError, KeyError, OSError, CardDeclined, Odd, ToolException, ExceptionGroup, SystemExit]
)


@given(st.lists(_json, max_size=3), st.dictionaries(st.text(), _json, max_size=3), st.text())
def test_any_exception_travels(arguments: list[Any], attributes: dict[str, Any], far_side: str) -> None:
    error = RuntimeError(*arguments)
    error.__dict__.update(attributes)
    restored = restore(describe(error, far_side))
    assert isinstance(restored, RuntimeError | RemoteHandlerError)
    if isinstance(restored, RuntimeError):
        assert str(restored) == str(error)


@given(
    _classes,
    st.text(),
    st.dictionaries(st.sampled_from(["args", "attributes", "notes", "traceback"]), _json | st.lists(_json)),
)
def test_restore_raises_nothing_but_malformed_message(cls: type, text: str, rest: dict[str, Any]) -> None:
    fields = {"type": f"{cls.__module__}:{cls.__qualname__}", "text": text} | rest
    try:
        restored = restore(json.dumps(fields).encode())
    except MalformedMessage:
        return
    assert isinstance(restored, Exception | ToolException)
