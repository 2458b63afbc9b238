"""The programs in docs/testing.md and docs/testing-faults.md run as they stand."""

from __future__ import annotations

import asyncio
import re
from types import ModuleType
from typing import Any

import pytest

from tests.house import sources

pytestmark = pytest.mark.integration

_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def program(document: str) -> dict[str, Any]:
    module = ModuleType("documented")
    file = sources.ROOT / "docs" / document
    blocks = _PYTHON.findall(file.read_text(encoding="utf-8"))
    exec(compile("\n\n".join(blocks), str(file), "exec"), vars(module))
    return vars(module)


def examples(document: str) -> list[str]:
    return [name for name in program(document) if name.startswith("test_")]


@pytest.mark.parametrize("name", examples("testing.md"))
async def test_an_example_without_a_model_runs(name: str) -> None:
    await asyncio.wait_for(program("testing.md")[name](), 30)


@pytest.mark.parametrize("name", examples("testing-faults.md"))
async def test_an_example_with_faults_runs(name: str, redis_url: str, namespace: str) -> None:
    await asyncio.wait_for(program("testing-faults.md")[name](redis_url, namespace), 30)
