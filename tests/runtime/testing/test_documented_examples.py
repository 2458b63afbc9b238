"""The programs in docs/testing-faults.md run as they stand."""

from __future__ import annotations

import asyncio
import re
from types import ModuleType
from typing import Any

import pytest

from tests.house import sources

pytestmark = pytest.mark.integration

_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DOCUMENT = sources.ROOT / "docs" / "testing-faults.md"


def program() -> dict[str, Any]:
    module = ModuleType("documented")
    blocks = _PYTHON.findall(_DOCUMENT.read_text(encoding="utf-8"))
    exec(compile("\n\n".join(blocks), str(_DOCUMENT), "exec"), vars(module))
    return vars(module)


EXAMPLES = [name for name in program() if name.startswith("test_")]


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_runs(name: str, redis_url: str, namespace: str) -> None:
    await asyncio.wait_for(program()[name](redis_url, namespace), 30)
