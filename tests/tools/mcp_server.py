"""An MCP server for the tests: two tools on standard input and output."""

from mcp.server.fastmcp import FastMCP

server = FastMCP("shop", log_level="ERROR")


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
    server.run("stdio")
