"""What a mutation is, and the tests that notice some of them; see `mutations`."""

from __future__ import annotations

from typing import Final, NamedTuple

EVERY: Final = "*"


class Mutation(NamedTuple):
    """In `script` (EVERY: wherever it is found) `old` is replaced by `new`.

    `seen_by` is the test that notices it where the simulation cannot, below tests/runtime/redis.
    """

    script: str
    old: str
    new: str
    seen_by: str = ""


COMMIT, CALL, FAIL, OWN = (f"test_scripts_{name}.py::" for name in ("commit", "call", "fail", "ownership"))
EVENTS, SEND, RECORD, END_CALL = (f"test_scripts_{name}.py::" for name in ("events", "send", "record", "end_call"))
FENCED: Final = "if not right then return refuse({'FENCED'}) end"
