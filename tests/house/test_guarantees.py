"""Each rule of docs/guarantees.md has a test, and that test says which rule it is about."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house import sources

pytestmark = pytest.mark.unit

_ROW = re.compile(r"^\| (I\d+) \|.*\| `((?:tests|stagebell/testing)/[\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)
RULES = {f"I{number}" for number in range(1, 24)} - {"I20", "I21"}  # of what the runtime does not offer yet


def rows() -> list[tuple[str, str, str]]:
    return _ROW.findall((sources.ROOT / "docs/guarantees.md").read_text(encoding="utf-8"))


def test_every_rule_has_a_row() -> None:
    assert {rule for rule, _, _ in rows()} == RULES


@pytest.mark.parametrize(("rule", "path", "name"), rows())
def test_the_test_of_a_rule_exists_and_names_it(rule: str, path: str, name: str) -> None:
    tree = sources.parse(sources.ROOT / path)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    found = [ast.get_docstring(node) or "" for node in functions if node.name == name]
    assert found, f"{path} has no {name}"
    assert re.search(rf"\b{rule}\b", found[0]), f"the docstring of {name} does not name {rule}"
