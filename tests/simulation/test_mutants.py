"""Every check of the scripts is there for a reason: without it somebody notices."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import try_mutation
from tests.simulation.mutations import MUTATIONS, sources
from tests.support.servers import available_kinds

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_applies(name: str) -> None:
    assert sources(name)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_noticed(name: str) -> None:
    verdict = try_mutation(name, available_kinds()[0])
    assert verdict.noticed, verdict.how
