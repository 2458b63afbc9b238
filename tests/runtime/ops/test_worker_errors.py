"""What cannot start says why in one line."""

from __future__ import annotations

import pytest

from tests.runtime.ops.commands import Shell
from tests.support.servers import free_port

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
        (["worker", "shop:setup", "--lease", "0"], "lease must be more than 0"),
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
