"""Find the setup function that `MODULE:SETUP` names."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, cast

from autogen_core import AgentRuntime

from stagebell.runtime.ops.console import USAGE, CommandFailed, one_line

Setup = Callable[[AgentRuntime], Awaitable[None]]


def split_target(target: str) -> tuple[str, str]:
    """The module and the function of `MODULE:SETUP`.

    Raises:
        CommandFailed: it is written in another way.
    """
    module, colon, function = target.partition(":")
    if not colon or not module or not function.isidentifier() or "/" in module or module.endswith(".py"):
        text = f"{target!r} must be MODULE:SETUP, a module and a function of it, such as shop.agents:setup"
        raise CommandFailed(text, code=USAGE)
    return module, function


def load_setup(target: str) -> Setup:
    """Import the module, with the current directory on the path, and take the function.

    Raises:
        CommandFailed: there is no such module or function, or it cannot be used.
    """
    name, function = split_target(target)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(name, here)
    setup: Any = getattr(module, function, None)
    if setup is None:
        raise CommandFailed(f"module {name} has no function {function!r}{_suggestion(module, function)}")
    if not inspect.iscoroutinefunction(setup):
        raise CommandFailed(f"{target} must be a function `async def {function}(runtime: AgentRuntime) -> None`")
    return cast("Setup", setup)


async def set_up(target: str, setup: Setup, runtime: AgentRuntime) -> None:
    """Let the function register its agents.

    Raises:
        CommandFailed: it raised, or asked the process to exit.
    """
    try:
        await setup(runtime)
    except SystemExit as error:
        raise CommandFailed(f"{target} {_exited(error)}") from error
    except Exception as error:
        text = f"{target} raised {type(error).__name__}: {one_line(error)} (--traceback shows where)"
        raise CommandFailed(text) from error


def _import(name: str, here: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            text = f"there is no module {missing!r} in {here} or among the installed packages"
            raise CommandFailed(text) from error
        raise CommandFailed(f"module {name} needs {missing!r}, which is not installed") from error
    except SystemExit as error:
        raise CommandFailed(f"module {name} cannot be imported: it {_exited(error)}") from error
    except Exception as error:
        text = f"module {name} cannot be imported: {type(error).__name__}: {one_line(error)}"
        raise CommandFailed(f"{text} (--traceback shows where)") from error


def _exited(error: SystemExit) -> str:
    """An exit is no success here, whatever its code: nothing has been served or looked at."""
    code = "" if error.code is None else f"{error.code!r:.200}"
    return f"called sys.exit({code}) (--traceback shows where)"


def _suggestion(module: ModuleType, function: str) -> str:
    there = [name for name, value in vars(module).items() if inspect.iscoroutinefunction(value)]
    close = difflib.get_close_matches(function, there, n=1) or (there if len(there) == 1 else [])
    return f": did you mean {module.__name__}:{close[0]}?" if close else ""
