"""What the package imports is declared, and what is declared has a reason."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from typing import Any

import pytest

from tests.house import sources

pytestmark = pytest.mark.unit


def project() -> dict[str, Any]:
    text = (sources.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)["project"]
    return table


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;~! ]", requirement)[0].lower() for requirement in requirements}


def imported() -> Iterator[tuple[str, str]]:
    for path in sources.modules():
        for node in ast.walk(sources.parse(path)):
            if isinstance(node, ast.Import):
                yield from ((alias.name.partition(".")[0], sources.relative(path)) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.partition(".")[0], sources.relative(path)


def test_everything_the_package_imports_is_declared() -> None:
    declared = names([*project()["dependencies"], *project()["optional-dependencies"]["otel"]])
    distributions = packages_distributions()
    undeclared = {
        f"{where}: {module}"
        for module, where in imported()
        if module != "stagebell" and module not in sys.stdlib_module_names
        if not declared & {name.lower().replace("_", "-") for name in distributions.get(module, [])}
    }
    assert not undeclared


def test_every_dependency_has_its_reason() -> None:
    groups: list[list[str]] = [project()["dependencies"], *project()["optional-dependencies"].values()]
    wanted = {name for group in groups for name in names(group)}
    reasons = (sources.ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert [name for name in sorted(wanted) if f"`{name}`" not in reasons] == []
