"""The tests of AutoGen that are left out are few, and docs/compatibility.md names each."""

import pytest

from tests.house import sources
from tests.peer.plan import RUNTIMES, Runtime

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime.name)
def test_left_out_tests_are_documented(runtime: Runtime) -> None:
    text = (sources.ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    exceptions = [test for tests in runtime.exceptions.values() for test in tests]
    assert [test for test in exceptions if test.partition("::")[2] not in text] == []
