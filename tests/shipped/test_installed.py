"""What a user has after `pip install stagebell`. Run by `make wheel` from a folder without the sources."""

import importlib
import importlib.metadata
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from autogen_core import AgentId, MessageContext, RoutedAgent, message_handler

import stagebell

PACKAGE = Path(stagebell.__file__).parent
COMMAND = Path(sys.prefix) / "bin" / "stagebell"


@dataclass
class Greeting:
    name: str


class Greeter(RoutedAgent):
    @message_handler
    async def greet(self, message: Greeting, ctx: MessageContext) -> str:
        return f"Hello {message.name}"


def command(*arguments: str) -> str:
    done = subprocess.run(
        [str(COMMAND), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_package_is_the_one_under_test() -> None:
    assert PACKAGE.is_relative_to(sys.prefix)


def test_version_and_licence_are_recorded() -> None:
    metadata = importlib.metadata.metadata("stagebell")
    assert metadata["License-Expression"] == "MIT"
    assert importlib.metadata.version("stagebell") == metadata["Version"]


def test_type_information_is_shipped() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_every_lua_script_is_shipped() -> None:
    scripts = PACKAGE / "runtime" / "redis" / "lua"
    assert {"send.lua", "commit.lua", "acquire.lua"} <= {script.name for script in scripts.glob("*.lua")}
    assert list((scripts / "lib").glob("*.lua"))


def test_nothing_but_the_package_is_shipped() -> None:
    files = importlib.metadata.files("stagebell") or []
    roots = {file.parts[0] for file in files}
    assert {root for root in roots if not root.endswith(".dist-info") and root != ".."} == {"stagebell"}
    assert not [file for file in files if "tests" in file.parts]


@pytest.mark.parametrize("name", stagebell.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(stagebell, name) is not None


def test_testing_helpers_are_importable() -> None:
    assert importlib.import_module("stagebell.testing").ScriptedModel


async def test_hello_in_one_process() -> None:
    runtime = stagebell.LocalRuntime()
    await Greeter.register(runtime, "greeter", lambda: Greeter("greets"))
    runtime.start()
    assert await runtime.send_message(Greeting("Ada"), AgentId("greeter", "one")) == "Hello Ada"
    await runtime.stop_when_idle()
    await runtime.close()


async def test_hello_over_the_embedded_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runtime = stagebell.RedisRuntime()
    await Greeter.register(runtime, "greeter", lambda: Greeter("greets"))
    await runtime.start()
    assert await runtime.send_message(Greeting("Ada"), AgentId("greeter", "one")) == "Hello Ada"
    await runtime.stop_when_idle()
    await runtime.close()


def test_the_command_line_explains_itself() -> None:
    text = command("--help")
    assert all(name in text for name in ("worker", "publish", "ps"))
    assert "JSON" in command("publish", "--help")
