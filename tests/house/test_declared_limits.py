"""What a runtime of ours cannot do, and our tests leave out for it, is told to users."""

import pytest

from tests.contract.capabilities import IN_MEMORY, OVER_A_SERVER, TOLD_AS
from tests.house import sources

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", OVER_A_SERVER.missing())
def test_what_tests_leave_out_is_documented(name: str) -> None:
    documents = (sources.ROOT / "README.md", sources.ROOT / "docs" / "compatibility.md")
    text = " ".join(" ".join(path.read_text(encoding="utf-8").split()) for path in documents)
    assert TOLD_AS[name] in text


def test_the_runtime_in_memory_leaves_nothing_out() -> None:
    assert IN_MEMORY.missing() == []
