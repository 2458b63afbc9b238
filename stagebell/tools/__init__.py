"""Tools: what an agent can do, what each of them declares, and the life of one call.

tool         a typed function becomes a tool          toolset     the tools there are, and no others
declared     what a tool says of its effects          conflicts   which calls may overlap
guardrails   functions that allow, rewrite or refuse  executor    the life of one call, step by step
ledger       what is done after a crash               approvals   calls that wait for a person
agent        `ToolAgent`: calls arrive as messages    mcp         tools of MCP servers
"""
