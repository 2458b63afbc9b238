"""The contract that the package offers to whoever writes a runtime, on ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stagebell.testing.contract import RuntimeContract
from tests.contract.capabilities import IN_MEMORY, OVER_A_SERVER
from tests.support.servers import available_kinds


class OurContract(RuntimeContract):
    """The runtimes of `make_runtime`."""

    @pytest.fixture(autouse=True)
    def _maker(self, make_runtime: Callable[[], Any]) -> None:
        self._make = make_runtime

    def make_runtime(self) -> Any:
        return self._make()


@pytest.mark.runtime
@pytest.mark.parametrize("kind", ["local"], indirect=True)
class TestInMemory(OurContract):
    capabilities = IN_MEMORY


@pytest.mark.integration
@pytest.mark.parametrize("kind", available_kinds(), indirect=True)
class TestOverAServer(OurContract):
    capabilities = OVER_A_SERVER
