"""Whatever is public says in docs/stability.md how stable it is."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator

import pytest
import typer.main

import stagebell
import stagebell.testing
from stagebell.runtime.ops.cli import app
from tests.house import sources

pytestmark = pytest.mark.unit

TAGS = ("stable", "provisional", "experimental")
_TABLE = re.compile(r"^\| (?P<of>[^|\n]+) \| tag \|.*\n\|[-| ]+\n(?P<rows>(?:\|.*\n)+)", re.MULTILINE)
_IMPORT = re.compile(r"^from (stagebell[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
_NAMED = re.compile(r"`(stagebell(?:\.\w+)+)`")


def tagged(of: str) -> dict[str, str]:
    """What the table of this heading tags: names and their tags."""
    text = (sources.ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    rows = next(table["rows"] for table in _TABLE.finditer(text) if table["of"] == of)
    found: list[tuple[str, str]] = []
    for row in rows.splitlines():
        names, tag = [cell.strip() for cell in row.split("|")[1:3]]
        found += [(name, tag) for name in re.findall(r"`([^`]+)`", names)]
    assert [name for name, count in Counter(name for name, _ in found).items() if count > 1] == []
    assert {tag for _, tag in found} <= set(TAGS)
    return dict(found)


def documents() -> Iterator[str]:
    """The texts that users read."""
    for path in [
        *sources.ROOT.glob("*.md"),
        *(sources.ROOT / "docs").glob("*.md"),
        *sources.ROOT.glob("examples/*.py"),
    ]:
        yield path.read_text(encoding="utf-8")


def is_module(name: str) -> bool:
    """True for the name of one of our modules."""
    path = sources.ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def documented_modules() -> set[str]:
    """The modules that documents and examples import from, or name."""
    found: set[str] = set()
    for text in documents():
        found |= {module for module, _ in _IMPORT.findall(text)}
        for name in _NAMED.findall(text):
            module = name if is_module(name) else name.rpartition(".")[0]
            found |= {module} if is_module(module) else set()
    return found - {"stagebell", "stagebell.testing"}


@pytest.mark.parametrize("module", [stagebell, stagebell.testing], ids=lambda module: module.__name__)
def test_each_public_name_has_a_tag(module: object) -> None:
    name = module.__name__
    assert tagged(f"`from {name} import`").keys() == set(module.__all__)


def test_each_module_that_documents_name_has_a_tag() -> None:
    modules = tagged("module")
    assert documented_modules() - modules.keys() == set()
    for module in modules:
        importlib.import_module(module)


def test_what_the_package_exports_is_imported_from_the_package() -> None:
    found = [(module, names) for text in documents() for module, names in _IMPORT.findall(text)]
    exported = set(stagebell.__all__)
    longer = [(module, names) for module, names in found if module not in ("stagebell", "stagebell.testing")]
    assert [each for each in longer if exported & set(re.findall(r"\w+", each[1]))] == []


def test_each_command_has_a_tag() -> None:
    commands = typer.main.get_command(app).commands
    assert tagged("command").keys() == {f"stagebell {name}" for name in commands}


def test_the_tags_are_explained() -> None:
    text = (sources.ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    assert all(f"| **{tag}** |" in text for tag in TAGS)
