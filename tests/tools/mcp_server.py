"""An MCP server for the tests, on standard input and output; with a port, over HTTP."""

import asyncio
import sys
from typing import Any

from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("shop", log_level="INFO" if sys.argv[1:] else "ERROR", port=int((sys.argv[1:] or ["0"])[0]))


@server.tool()
def price(item: str, count: int = 1) -> int:
    """What something costs.

    Args:
        item: what
        count: how many
    """
    if item == "moon":
        raise ValueError("the moon is not for sale")
    return 3 * count


@server.tool()
async def open_shelf(context: Context[Any, Any, Any]) -> str:
    """Let there be another tool."""
    server.add_tool(shelf)
    await context.session.send_tool_list_changed()
    return "open"


@server.tool()
async def wait(seconds: float) -> str:
    """Take so long."""
    await asyncio.sleep(seconds)
    return "at last"


def shelf(number: int) -> str:
    """What is on a shelf."""
    return f"tea on shelf {number}"


if __name__ == "__main__":
    server.run("streamable-http" if sys.argv[1:] else "stdio")
