"""A server of the Model Context Protocol with one tool, in nothing but the standard library: it reads requests from standard input, a line each."""

import json
import sys

TOOL = {
    "name": "stock",
    "description": "Says how many of a part there are.",
    "inputSchema": {"type": "object", "properties": {"part": {"type": "integer"}}, "required": ["part"]},
}


def answer(method, params):
    """The result of a request."""
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "depot", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        part = params["arguments"]["part"]
        return {"content": [{"type": "text", "text": str(part * 37 % 900 + 100)}]}
    if method == "ping":
        return {}
    raise ValueError("unknown method " + method)


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:  # a notification
        continue
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    try:
        reply["result"] = answer(request["method"], request.get("params", {}))
    except (KeyError, TypeError, ValueError) as fault:
        reply["error"] = {"code": -32602, "message": str(fault)}
    print(json.dumps(reply), flush=True)
