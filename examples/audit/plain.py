"""The same measures without agents, in this process: the truth that the agents' counts are held against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from examples.audit.measure import FileReport, measure
from examples.audit.tree import SourceFile


def measure_all(files: Iterable[SourceFile]) -> Iterator[tuple[SourceFile, FileReport]]:
    """Measures file after file.

    Args:
        files: the files.

    Yields:
        Each file with its measures, as soon as they are known.
    """
    for file in files:
        yield file, measure(file.path.read_bytes(), str(file.path))
