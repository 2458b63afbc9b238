"""What has to be an error of types is kept in tests/typing, and nothing there is checked by halves.

`make check` runs mypy and pyright over those files. A line that must be refused is marked; a mark that is not needed,
since the line is let pass, is an error of both.
"""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tests.house import sources

pytestmark = pytest.mark.unit

FIXTURES = sorted((sources.ROOT / "tests" / "typing").glob("*.py"))
REFUSED = {  # what users could get wrong, and the line that shows it
    "agents.py": ("tools=[stock, balance]", "output_validators=[check])  # type: ignore"),
    "tools.py": ("Toolset[Shop]([price, balance])", 'ToolAgent("Tools.", [stock])', "await price(1)"),
}


def configuration() -> dict[str, Any]:
    return tomllib.loads((sources.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]


def test_both_checkers_read_them_in_strict_mode() -> None:
    tools = configuration()
    assert tools["mypy"]["strict"] is True
    assert "tests/typing" in tools["mypy"]["files"]
    assert tools["pyright"]["typeCheckingMode"] == "strict"
    assert "tests/typing" in tools["pyright"]["include"]
    assert "make check" in (sources.ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_a_mark_that_is_not_needed_is_an_error(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    if "# type: ignore" in text:
        assert "# pyright: reportUnnecessaryTypeIgnoreComment=true" in text
        assert "# type: ignore\n" not in text  # each says which error it is


@pytest.mark.parametrize("name", REFUSED)
def test_what_must_be_refused_is_marked(name: str) -> None:
    lines = (sources.ROOT / "tests" / "typing" / name).read_text(encoding="utf-8").splitlines()
    for wrong in REFUSED[name]:
        assert any(wrong in line and "# type: ignore[" in line for line in lines), wrong
