"""A saga: a refund in three steps. The last one is refused, so the run fails, and the first two are taken back.
--redis: over a server, which keeps every step.  --openai: a real model, with OPENAI_API_KEY in the environment.
"""

import asyncio
import sys
from typing import Any

from autogen_core import FunctionCall

from stagebell import LocalRuntime, ModelAgent, RedisRuntime, Runs, ToolContext, tool
from stagebell.errors import FatalToolError
from stagebell.testing import ScriptedModel

BOOKS: dict[str, str] = {}  # what a shop has written down, by idempotency key


def undo(arguments: Any, result: Any, context: ToolContext[Any]) -> None:
    print("taken back:", BOOKS.pop(context.idempotency_key.removesuffix("~undo")))


@tool(effects="side", compensate=undo)
async def expect_goods(context: ToolContext[Any], order: str, cents: int) -> None:
    """Write down that the goods of an order are coming back."""
    BOOKS[context.idempotency_key] = f"goods of {order}"


@tool(effects="side", compensate=undo)
async def write_credit_note(context: ToolContext[Any], order: str, cents: int) -> None:
    """Write a credit note."""
    BOOKS[context.idempotency_key] = f"credit note of {cents} cents"


@tool(effects="idempotent")
async def pay_back(order: str, cents: int) -> None:
    """Pay the money back, at last."""
    raise FatalToolError("the account of the customer is closed")


def model() -> Any:
    if "--openai" in sys.argv:
        from autogen_ext.models.openai import OpenAIChatCompletionClient  # pip install 'autogen-ext[openai]'

        return OpenAIChatCompletionClient(model="gpt-4o-mini")
    arguments, names = '{"order": "A1", "cents": 500}', ("expect_goods", "write_credit_note", "pay_back")
    return ScriptedModel([[FunctionCall(name, arguments, name)] for name in names])


def refunds() -> ModelAgent[object, str]:
    return ModelAgent(model(), tools=[expect_goods, write_credit_note, pay_back])


async def main() -> None:
    async with RedisRuntime(namespace="saga") if "--redis" in sys.argv else LocalRuntime() as runtime:
        await ModelAgent.register(runtime, "refunds", refunds)
        result = await Runs(runtime).run("refunds", "Refund A1: expect the goods, credit note, then pay 500 cents.")
    print(result.status, result.reason, "|", result.text, "|", BOOKS)


asyncio.run(main())
