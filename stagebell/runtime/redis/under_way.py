"""By which versions of the registry requests have left whose answers are still to come.

No request may leave by a newer version while one that left by an older version may still be refused: it would overtake
it. `lane` keeps this rule for sends, `commit_order` for commits that publish.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import Counter


class UnderWay:
    """The versions that requests under way carry."""

    def __init__(self) -> None:
        self._versions: Counter[int] = Counter()
        self._next_answer: Future[None] | None = None

    def left(self, version: int) -> None:
        """A request has left by this version."""
        self._versions[version] += 1

    def answered(self, version: int) -> None:
        """It was answered, or has left again by another version."""
        self._versions[version] -= 1
        if not self._versions[version]:
            del self._versions[version]
        if self._next_answer is not None:
            self._next_answer.set_result(None)
            self._next_answer = None

    def may_be_overtaken(self, version: int) -> bool:
        """True when a request that left now by `version` might overtake one."""
        versions = self._versions
        return bool(versions) and (len(versions) > 1 or version not in versions)

    async def next_answer(self) -> None:
        """Wait until one more is answered."""
        if self._next_answer is None:
            self._next_answer = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next_answer)
