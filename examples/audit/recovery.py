"""Which worker to kill, and when others have taken over its packages. Pure; times are given, in seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from examples.audit.messages import Progress


def most_loaded(progress: Progress, expected: Mapping[str, int], workers: Collection[int]) -> int:
    """Chooses the worker with the most files still to come, so that its end is felt.

    Args:
        progress: how far it is.
        expected: the number of files of each package.
        workers: process ids to choose from, at least one.

    Returns:
        A process id.
    """
    return max(workers, key=lambda worker: (sum(_left(progress, expected, worker).values()), -worker))


class Recovery:
    """Watches the packages that a worker was busy with when it was killed.

    A package has recovered when another worker has measured a file of it. Packages that the worker held but
    had not begun, or had finished, are not looked at: nobody outside can see whose they are.
    """

    def __init__(self, killed: int, progress: Progress, expected: Mapping[str, int], now: float) -> None:
        self.killed = killed
        self.killed_at = now
        self.packages = len(_left(progress, expected, killed))
        self.first: float | None = None
        """Seconds from the kill until the first package had recovered."""
        self.all: float | None = None
        """Seconds from the kill until every package had recovered."""
        self._waiting = set(_left(progress, expected, killed))
        self._expected = expected

    def see(self, progress: Progress, now: float) -> None:
        """Takes note of how far it is now."""
        recovered = {name for name in self._waiting if self._is_recovered(progress, name)}
        self._waiting -= recovered
        if recovered and self.first is None:
            self.first = now - self.killed_at
        if not self._waiting and self.all is None:
            self.all = now - self.killed_at

    def _is_recovered(self, progress: Progress, name: str) -> bool:
        # The killed worker may have finished a package between the last look and its end.
        files, worker = progress.by_package[name]
        return worker != self.killed or files >= self._expected[name]


def _left(progress: Progress, expected: Mapping[str, int], worker: int) -> dict[str, int]:
    return {
        name: expected[name] - files
        for name, (files, latest) in progress.by_package.items()
        if latest == worker and files < expected.get(name, 0)
    }
