"""The commands, files and links that the documents name exist."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stagebell
from tests.house import sources

pytestmark = pytest.mark.unit

_CONSOLE = re.compile(r"^```(?:console|bash|sh|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)")


def documents() -> list[Path]:
    return sorted([*sources.ROOT.glob("*.md"), *(sources.ROOT / "docs").rglob("*.md")])


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block: after `$`, or a whole line in a block without prompts."""
    for document in documents():
        for block in _CONSOLE.findall(document.read_text(encoding="utf-8")):
            lines = block.replace("\\\n", " ").splitlines()
            prompted = [line[2:] for line in lines if line.startswith("$ ")]
            for line in prompted or lines:
                words = shlex.split(line, comments=True)
                if words:
                    yield f"{sources.relative(document)}: {line.strip()}", words


def of_program(*names: str) -> list[tuple[str, list[str]]]:
    return [(where, words) for where, words in commands() if words[0] in names]


def make_targets() -> set[str]:
    makefile = (sources.ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))


def test_make_targets_exist() -> None:
    unknown = [
        where
        for where, words in of_program("make")
        for word in words[1:]
        if "=" not in word and not word.startswith("-") and word not in make_targets()
    ]
    assert not unknown


def test_make_targets_are_explained() -> None:
    makefile = (sources.ROOT / "Makefile").read_text(encoding="utf-8")
    assert make_targets() == set(re.findall(r"^([a-z][\w-]*):.*## \S", makefile, re.MULTILINE))


def test_commands_of_stagebell_exist() -> None:
    subcommands = {words[1] for _, words in of_program("stagebell") if len(words) > 1 and words[1][0] != "-"}
    for subcommand in sorted(subcommands):
        done = subprocess.run(
            [sys.executable, "-m", "stagebell", subcommand, "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"stagebell {subcommand}: {done.stderr[-300:]}"


def test_python_files_and_modules_exist() -> None:
    missing: list[str] = []
    for where, words in of_program("python", "python3", ".venv/bin/python"):
        if "-m" in words[:-1]:
            module = sources.ROOT / words[words.index("-m") + 1].replace(".", "/")
            ours = (sources.ROOT / module.relative_to(sources.ROOT).parts[0]).is_dir()
            if ours and not (module.with_suffix(".py").is_file() or (module / "__main__.py").is_file()):
                missing.append(where)
        elif len(words) > 1 and words[1].endswith(".py") and not (sources.ROOT / words[1]).is_file():
            missing.append(where)
    assert not missing


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{sources.relative(document)}: {target}"
        for document in documents()
        for target in _LINK.findall(document.read_text(encoding="utf-8"))
        if not (document.parent / target).exists()
    ]
    assert not broken


def test_the_six_questions_are_answered_by_public_names() -> None:
    text = (sources.ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+\? \| `(\w+)`", text, re.MULTILINE)
    assert len(rows) == 6
    assert all(hasattr(stagebell, name) and name in stagebell.__all__ for name in rows)
