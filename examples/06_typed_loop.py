"""A typed loop: a model that uses a tool with dependencies, and gives a structured result; what happens is followed.

--redis: over a server, which keeps every step.  --openai: a real model, with OPENAI_API_KEY in the environment.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

from autogen_core import FunctionCall
from pydantic import BaseModel, Field

from stagebell import LocalRuntime, ModelAgent, RedisRuntime, Runs, ToolContext, tool
from stagebell.testing import ScriptedModel


@dataclass
class Station:  # what the tool works with: made on the worker, part of no message and no state
    city: str

    async def degrees(self, day: str) -> float:
        return {"today": 3.0, "tomorrow": 12.5}[day]


class Advice(BaseModel):
    coat: bool
    why: str = Field(min_length=5)


@tool(effects="none", timeout=5)
async def temperature(context: ToolContext[Station], day: str) -> float:
    """The temperature of a day, "today" or "tomorrow", in degrees Celsius."""
    return await context.deps.degrees(day)


def model() -> Any:
    if "--openai" in sys.argv:
        from autogen_ext.models.openai import OpenAIChatCompletionClient  # pip install 'autogen-ext[openai]'

        return OpenAIChatCompletionClient(model="gpt-4o-mini")
    call = [FunctionCall(id="1", name="temperature", arguments='{"day": "today"}')]
    return ScriptedModel([call, '{"coat": "very"}', '{"coat": true, "why": "It is 3 degrees."}'])


def advisor() -> ModelAgent[Station, Advice]:
    told = "You advise people on what to wear."
    return ModelAgent(model(), instructions=told, tools=[temperature], deps=Station, output_type=Advice)


async def main() -> None:
    async with RedisRuntime(namespace="weather") if "--redis" in sys.argv else LocalRuntime() as runtime:
        await ModelAgent.register(runtime, "advisor", advisor)
        run = await Runs(runtime).start("advisor", "Do I need a coat today?", deps_key="Oslo", output_type=Advice)
        async for happened in run.events():
            print(happened.entry.step, happened.entry.kind)
        print(await run.output())


asyncio.run(main())
