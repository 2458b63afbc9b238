"""What cannot start says why in one line."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.runtime.ops.commands import Command, Shell
from tests.support.servers import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def one_error(shell: Shell, *arguments: str, code: int = 1, **changes: str) -> str:
    done = shell.run(*arguments, **changes)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("error: ").strip()


def test_a_setup_that_raises(shell: Shell) -> None:
    text = one_error(shell, "worker", "shop:fails")
    assert text == "shop:fails raised ValueError: the till is empty (--traceback shows where)"


def test_the_traceback_on_request(shell: Shell) -> None:
    done = shell.run("worker", "shop:fails", "--traceback")
    assert done.returncode == 1
    assert 'shop.py", line' in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: shop:fails raised")


def test_a_module_that_is_not_there(shell: Shell) -> None:
    assert "no module 'shopp'" in one_error(shell, "worker", "shopp:setup")
    assert "no module 'shop.clerks'" in one_error(shell, "worker", "shop.clerks:setup")


def test_a_module_that_needs_another(shell: Shell) -> None:
    (shell.folder / "needy.py").write_text("import not_there\n")
    assert one_error(shell, "worker", "needy:setup") == "module needy needs 'not_there', which is not installed"


def test_a_module_that_fails(shell: Shell) -> None:
    (shell.folder / "broken.py").write_text("1 / 0\n")
    assert "broken cannot be imported: ZeroDivisionError" in one_error(shell, "worker", "broken:setup")


@pytest.mark.parametrize("code", ["", "0", "1", "'the till is closed'"])
def test_a_module_that_exits(shell: Shell, code: str) -> None:
    (shell.folder / "leaving.py").write_text(f"import sys\nsys.exit({code})\n")
    says = f"module leaving cannot be imported: it called sys.exit({code}) (--traceback shows where)"
    assert one_error(shell, "worker", "leaving:setup") == says


@pytest.mark.parametrize("command", ["worker", "state check", "tools audit"])
def test_a_setup_that_exits(shell: Shell, command: str) -> None:
    (shell.folder / "leaving.py").write_text("import sys\nasync def setup(runtime):\n    sys.exit(0)\n")
    text = one_error(shell, *command.split(), "leaving:setup")
    assert text == "leaving:setup called sys.exit(0) (--traceback shows where)"


def test_a_function_that_is_not_there(shell: Shell) -> None:
    assert "did you mean shop:setup?" in one_error(shell, "worker", "shop:setupp")


def test_a_function_that_is_not_async(shell: Shell) -> None:
    assert "async def plain(runtime" in one_error(shell, "worker", "shop:plain")


def test_a_setup_without_agents(shell: Shell) -> None:
    assert "shop:nothing registered no agents" in one_error(shell, "worker", "shop:nothing")


def test_a_server_that_is_not_there(shell: Shell) -> None:
    url = f"redis://:op3n-sesame@127.0.0.1:{free_port()}"
    text = one_error(shell, "worker", "shop:setup", STAGEBELL_REDIS=url)
    assert "cannot reach the server at 127.0.0.1:" in text
    assert "STAGEBELL_REDIS" in text
    assert "cannot reach" in one_error(shell, "ps", STAGEBELL_REDIS=url)


@pytest.fixture
def mute_port() -> Iterator[int]:
    """Where connections are taken, and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=20) as mute:
        yield mute.getsockname()[1]


async def test_a_server_that_does_not_answer_is_named_before_it_is_given_up(shell: Shell, mute_port: int) -> None:
    resolver = "import socket, time\nsocket.getaddrinfo = lambda *given, **named: time.sleep(60)\n"
    (shell.folder / "sitecustomize.py").write_text(resolver)
    shell.environment["PYTHONPATH"] = f"{shell.folder}:{shell.environment['PYTHONPATH']}"
    started: list[tuple[str, Command]] = []
    for number, place in enumerate((f"127.0.0.1:{mute_port}", "till.example:6379"), start=1):
        shell.environment["STAGEBELL_REDIS"] = f"redis://:op3n-sesame@{place}"
        started.append((place, shell.start("worker", "shop:setup", "--processes", str(number))))
    for place, worker in started:
        await eventually(lambda each=worker: each.errors, within=20)
        assert worker.process.poll() is None
        assert f"the server at {place} does not answer: trying for 5 s in all" in worker.errors
    for place, worker in started:
        assert await worker.ended(within=20) == 1
        error = worker.errors.splitlines()[-1]
        assert error.startswith(f"error: the worker cannot start: cannot reach the server at {place}: no answer within")


HALF = """
import os, time

async def setup(runtime) -> None:
    os.close(os.open(str(os.getpid()) + ".here", os.O_CREAT))
    while len([name for name in os.listdir() if name.endswith(".here")]) < 2:
        time.sleep(0.05)
    if f"{os.getpid()}.here" == min(name for name in os.listdir() if name.endswith(".here")):
        raise ValueError("the till is empty")
    os._exit = lambda code: None  # as native code that holds the interpreter does
    time.sleep(60)
"""


async def test_the_reason_comes_before_what_else_had_to_be_killed(shell: Shell) -> None:
    (shell.folder / "half.py").write_text(HALF)
    worker = shell.start("worker", "half:setup", "--processes", "2", "--stop-grace", "0.2")
    assert await worker.ended(within=30) == 1
    error = worker.errors.splitlines()[-1]
    assert error.startswith("error: half:setup raised ValueError: the till is empty")
    assert "; did not stop within 3.2 s and had to be killed: process " in error


def test_a_wrong_password(shell: Shell) -> None:
    wrong = shell.environment["STAGEBELL_REDIS"].replace("op3n-sesame", "op3n-barley")
    text = one_error(shell, "worker", "shop:setup", STAGEBELL_REDIS=wrong)
    assert "WRONGPASS" in text or "invalid" in text
    assert "barley" not in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["worker", "shop"], "MODULE:SETUP"),
        (["worker", "shop.py:setup"], "MODULE:SETUP"),
        (["worker", "shop:setup", "--redis", "redis://:op3n-sesame/x@nowhere:1"], "URL must look like"),
        (["worker", "shop:setup", "--namespace", "a b"], "namespace 'a b'"),
        (["worker", "shop:setup", "--lease", "0"], "lease must be a number of seconds"),
        (["worker", "shop:setup", "--when-full", "drop"], 'when_full must be "wait" or "raise"'),
        (["worker", "shop:setup", "--inbox-limit", "1.5"], "see: stagebell worker --help"),
        (["worker", "shop:setup", "--processes", "0"], "see: stagebell worker --help"),
        (["worker", "shop:setup", "--log-level", "loud"], "debug, info, warning, error"),
        (["worker"], "MODULE:SETUP"),
        (["work"], "see: stagebell --help"),
    ],
)
def test_a_command_that_is_wrong(shell: Shell, arguments: list[str], says: str) -> None:
    assert says in one_error(shell, *arguments, code=2)
