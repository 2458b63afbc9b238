"""Where the project's files are, for the tests of the house."""

import ast
import gc
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "stagebell"
PROGRAMS = tuple(ROOT / name for name in ("stagebell", "tests", "examples", "benchmarks"))
_SKIPPED = {".git", ".venv", ".stagebell", "build", "dist", "__pycache__"}
_TEXT = {".cfg", ".ini", ".json", ".lua", ".md", ".py", ".toml", ".txt", ".yaml", ".yml", ""}


@dataclass(frozen=True)
class Function:
    """A function and how many lines it takes, with and without its docstring."""

    where: str
    lines: int
    lines_of_code: int


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def programs() -> list[Path]:
    """Every module: of the package, and of all that is there for it."""
    return sorted(path for folder in PROGRAMS for path in folder.rglob("*.py"))


def scripts() -> list[Path]:
    return sorted(PACKAGE.rglob("*.lua"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            where = f"{relative(path)}:{node.lineno} {node.name}"
            yield Function(where, lines, lines - _docstring_lines(node))


def parse(path: Path) -> ast.Module:
    """The tree of a file."""
    # CPython 3.11 takes it for an error of its own when garbage that is collected meanwhile parses something, too.
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def project_files() -> list[Path]:
    """The text files that belong to the project: what git would commit; without git, all of them."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        found = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not _SKIPPED & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in found if path.is_file() and path.suffix in _TEXT)
