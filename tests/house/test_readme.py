"""The programs in the README run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import sources
from tests.support.servers import Server

pytestmark = pytest.mark.integration

_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def programs() -> list[str]:
    return _PYTHON.findall((sources.ROOT / "README.md").read_text(encoding="utf-8"))


def run(program: Path) -> str:
    done = subprocess.run(
        [sys.executable, program.name], cwd=program.parent, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_program_greets(tmp_path: Path) -> None:
    program = tmp_path / "first.py"
    program.write_text(programs()[0])
    assert run(program) == "Hello Ada, you are number 1\n"


def test_the_first_program_greets_over_a_server(tmp_path: Path) -> None:
    program = tmp_path / "first.py"
    program.write_text(programs()[0].replace("LocalRuntime", "RedisRuntime"))
    assert run(program) == "Hello Ada, you are number 1\n"
    assert (tmp_path / ".stagebell").is_dir()


def test_the_shop_is_a_module_with_a_setup(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(programs()[1])
    program = tmp_path / "main.py"
    program.write_text(
        "import asyncio\n"
        "from autogen_core import TopicId\n"
        "from stagebell import LocalRuntime\n"
        "import shop\n"
        "async def main():\n"
        "    async with LocalRuntime() as runtime:\n"
        "        await shop.setup(runtime)\n"
        "        await runtime.publish_message(shop.OrderPlaced(order=7), TopicId('orders', 'eu'))\n"
        "        await runtime.stop_when_idle()\n"
        "asyncio.run(main())\n"
    )
    assert run(program) == "order 7 at eu\n"


def test_the_publisher_reaches_the_shop(tmp_path: Path, server: Server, namespace: str) -> None:
    (tmp_path / "shop.py").write_text(programs()[1])
    program = tmp_path / "main.py"
    text = programs()[2].replace("redis://localhost:6379", server.url).replace('"shop"', repr(namespace))
    program.write_text(
        text.replace("asyncio.run(main())", "")
        + "import shop\n"
        + "from stagebell import RedisRuntime\n"
        + "async def hosted():\n"
        + f"    async with RedisRuntime({server.url!r}, namespace={namespace!r}) as runtime:\n"
        + "        await shop.setup(runtime)\n"
        + "        await main()\n"
        + "        await runtime.stop_when_idle()\n"
        + "asyncio.run(hosted())\n"
    )
    assert sorted(run(program).splitlines()) == ["order 10 at eu", "order 8 at eu", "order 9 at eu"]


def test_the_refund_waits_for_nobody_when_it_is_small(tmp_path: Path) -> None:
    (tmp_path / "refunds.py").write_text(programs()[3])
    program = tmp_path / "main.py"
    program.write_text(
        "import asyncio\n"
        "from autogen_core import AgentId, FunctionCall\n"
        "from stagebell import LocalRuntime, ToolAgent\n"
        "from refunds import Bank, refund\n"
        "async def main():\n"
        "    async with LocalRuntime() as runtime:\n"
        "        await ToolAgent.register(runtime, 'bank', lambda: ToolAgent('Pays.', [refund], deps=Bank()))\n"
        "        call = FunctionCall(id='1', name='refund', arguments='{\"order\": \"A1\", \"cents\": 500}')\n"
        "        print((await runtime.send_message(call, AgentId('bank', 'one'))).content)\n"
        "asyncio.run(main())\n"
    )
    assert run(program) == "500 cents are paid back for A1\n"


def test_the_advisor_advises(tmp_path: Path) -> None:
    (tmp_path / "advice.py").write_text(programs()[4])
    program = tmp_path / "main.py"
    program.write_text(
        "import asyncio\n"
        "from autogen_core import FunctionCall\n"
        "from stagebell import LocalRuntime\n"
        "from stagebell.testing import ScriptedModel\n"
        "import advice\n"
        "async def main():\n"
        "    call = FunctionCall(id='1', name='temperature', arguments='{\"city\": \"Oslo\"}')\n"
        '    model = ScriptedModel([[call], \'{"coat": true, "why": "3 degrees"}\'])\n'
        "    async with LocalRuntime() as runtime:\n"
        "        await advice.setup(runtime, model)\n"
        "        print(await advice.ask(runtime))\n"
        "asyncio.run(main())\n"
    )
    assert run(program) == "coat=True why='3 degrees'\n"


def test_the_desk_answers_when_it_was_told_to(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(programs()[5])
    program = tmp_path / "main.py"
    program.write_text(
        "import asyncio\n"
        "from autogen_core import AgentId\n"
        "from stagebell import LocalRuntime\n"
        "from desk import Decision, Desk, Request\n"
        "async def main():\n"
        "    async with LocalRuntime() as runtime:\n"
        "        await Desk.register(runtime, 'desk', Desk)\n"
        "        desk = AgentId('desk', 'one')\n"
        "        asked = asyncio.create_task(runtime.send_message(Request(what='tea'), desk))\n"
        "        await asyncio.sleep(0)\n"
        "        await runtime.send_message(Decision(what='tea', granted=True), desk)\n"
        "        print(await asked)\n"
        "asyncio.run(main())\n"
    )
    assert run(program) == "True\n"
