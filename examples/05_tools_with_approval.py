"""Tools with approval: a model asks for two refunds, and a person has to agree to the large one.

--redis: over a server, which keeps what waits.  --openai: a real model, with OPENAI_API_KEY in the environment.
"""

import asyncio
import json
import sys
from typing import Annotated, Any

from autogen_core import AgentId, FunctionCall
from autogen_core.models import UserMessage
from autogen_core.tool_agent import tool_agent_caller_loop
from pydantic import Field

from stagebell import Approvals, LocalRuntime, RedisRuntime, ToolAgent, ToolContext, tool
from stagebell.testing import ScriptedModel

TASK = UserMessage(content="Pay back 5 euros for order A1, and 90 euros for order A2.", source="user")
ORDERS = {"A1": 500, "A2": 9000}
BANK: dict[str, int] = {}  # what was paid, by idempotency key; each key is paid once


@tool(effects="idempotent", timeout=5, requires_approval=lambda given: given["cents"] > 1000)
async def refund(context: ToolContext[dict[str, int]], order: str, cents: Annotated[int, Field(gt=0)]) -> str:
    """Pay a customer back."""
    context.deps.setdefault(context.idempotency_key, cents)
    return f"{cents} cents are paid back for {order}"


def model() -> Any:
    if "--openai" in sys.argv:
        from autogen_ext.models.openai import OpenAIChatCompletionClient  # pip install 'autogen-ext[openai]'

        return OpenAIChatCompletionClient(model="gpt-4o-mini")
    calls = [FunctionCall(id, json.dumps({"order": id, "cents": cents}), "refund") for id, cents in ORDERS.items()]
    return ScriptedModel([calls, "Both are paid back."])


async def person(approvals: Approvals) -> None:
    while not (waiting := await approvals.list()):
        await asyncio.sleep(0.05)
    print("waits for a person:", waiting[0].request.call.arguments)
    await approvals.edit(waiting[0].request.id, {"order": "A2", "cents": 4500}, by="Ann")


async def main() -> None:
    async with RedisRuntime(namespace="bank") if "--redis" in sys.argv else LocalRuntime() as runtime:
        await ToolAgent.register(runtime, "bank", lambda: ToolAgent("Pays.", [refund], deps=BANK), approvals=True)
        run = tool_agent_caller_loop(runtime, AgentId("bank", "main"), model(), [TASK], [refund.schema])
        messages, _ = await asyncio.gather(run, person(Approvals(runtime)))
    print(messages[-1].content, sorted(BANK.values()))


asyncio.run(main())
