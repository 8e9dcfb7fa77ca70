"""A server of the Model Context Protocol, made with its Python SDK: over standard input and output, or with the argument http over streamable HTTP at a free
port of the loopback interface, whose address is printed."""

import asyncio
import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from pydantic import BaseModel

server = MCPServer("published")


class Point(BaseModel):
    x: int
    y: float = 1.5


@server.tool()
def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def point(p: Point) -> Point:
    return Point(x=p.x + 1)


@server.tool()
def fails() -> str:
    raise ValueError("no luck")


@server.tool()
def several() -> list[str]:
    return ["one", "two"]


@server.tool()
async def slow(steps: int, ctx: Context) -> str:
    for i in range(steps):
        await ctx.report_progress(i, steps)
        await asyncio.sleep(0)
    return "done"


@server.tool()
def nothing() -> None:
    return None


@server.tool()
def picture() -> Image:
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


if sys.argv[1:] == ["http"]:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])
else:
    server.run(transport="stdio")
