"""Which turns that had begun must run before what lies ahead of them in the inbox.

Those that have savepoints, which are on top of a state that nothing else may change before, and the turns that these
are nested in. That a turn has begun is not enough: what was sent again after a failover counts the attempt of a message
whose turn was open when the server went back, while the message before it is there again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.link import Link
from stagebell.runtime.redis.lookahead import callers_of
from stagebell.runtime.redis.results import InboxEntry


def find_saved_turns(
    link: Link,
    keys: LeasedKeys,
    entries: Sequence[InboxEntry],
    begun: Collection[str],
    then: Callable[[frozenset[str]], None],
) -> None:
    """Call `then` with those turns of the entries read, once all that had `begun` have been looked for."""
    first: set[str] = set()
    candidates = [entry for entry in entries if entry.turn_id in begun]
    left = len(candidates)

    def look(entry: InboxEntry) -> None:
        def hear(savepoints: Mapping[str, bytes] | BaseException) -> None:
            nonlocal left
            left -= 1
            if savepoints and not isinstance(savepoints, BaseException):
                first.update((entry.turn_id, *callers_of(entry.envelope)))
            if not left:
                then(frozenset(first))

        link.run(lambda scripts: scripts.savepoints(keys.savepoints(entry.turn_id)), hear)

    for entry in candidates:
        look(entry)
    if not candidates:
        then(frozenset())
