"""The simulation itself, and a handful of its schedules; `make simulate` and `make torture` run many more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.campaign import kept_seeds, run_seeds, store_of
from tests.simulation.schedule import run_schedule
from tests.simulation.store import Store
from tests.support.servers import available_kinds

pytestmark = pytest.mark.integration

SEVERAL = range(7, 15)
_DIGEST = """
import sys
from tests.simulation.campaign import store_of
from tests.simulation.schedule import run_schedule
with store_of(sys.argv[1]) as store:
    print(run_schedule(store, 11).digest)
"""


@pytest.fixture(scope="module", params=available_kinds())
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A server of each kind for the simulation."""
    with store_of(request.param) as opened:
        yield opened


def test_seeds_that_failed_once_and_some_more(store: Store) -> None:
    result = run_seeds(store, [*kept_seeds(), *SEVERAL])
    assert not result.failed
    assert not run_seeds(store, kept_seeds(), limits=False).failed  # some were found before there were limits
    assert result.faults["crash"]
    assert result.faults["break"]


def test_a_seed_gives_the_same_history_again(store: Store) -> None:
    first, other, again = (run_schedule(store, seed) for seed in (11, 12, 11))
    assert first.history == again.history
    assert first.digest == again.digest != other.digest


def test_a_seed_gives_the_same_history_in_another_process() -> None:
    kind = available_kinds()[0]
    checkout = str(Path(__file__).resolve().parents[2])
    digests = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST, kind],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": checkout},
            cwd=checkout,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_thousands_of_seeds(store: Store) -> None:
    result = run_seeds(store, range(1_000_000, 1_002_600))
    assert not result.failed
