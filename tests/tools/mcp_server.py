"""An MCP server for the tests, on standard input and output; with a port, over HTTP."""

import sys

from mcp.server.fastmcp import FastMCP

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


if __name__ == "__main__":
    server.run("streamable-http" if sys.argv[1:] else "stdio")
