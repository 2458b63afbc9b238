"""Which files there are. A package is a folder; its files are numbered from 0 in order of their names."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = "top"
"""The package of the files that lie directly in the tree's folder."""

_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__", ".git", ".venv", "node_modules"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the tree; `number` is its place in its package."""

    package: str
    number: int
    path: Path


def standard_library() -> Path:
    """Returns the folder of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(root: Path) -> list[SourceFile]:
    """Finds every `.py` file below a folder, without installed packages.

    Args:
        root: the folder; links to folders are not followed.

    Returns:
        The files by package and name, the same list for the same tree.
    """
    packages: dict[str, list[Path]] = {}
    for path in sorted(_paths(root)):
        packages.setdefault(_package(path.parent.relative_to(root)), []).append(path)
    return [
        SourceFile(package, number, path)
        for package, paths in sorted(packages.items())
        for number, path in enumerate(paths)
    ]


def _paths(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


def _package(folder: Path) -> str:
    """The folder as a dotted name that can be the key of an agent and the source of a topic."""
    return re.sub(r"[^\w.\-]", "_", ".".join(folder.parts)) or TOP
