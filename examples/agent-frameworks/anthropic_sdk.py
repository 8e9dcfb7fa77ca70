"""Anthropic's SDK with a tool, unchanged but for the client's base URL. The messages are streamed."""

import anthropic

import weir
from boxes import PARAMETERS, look, score


@weir.agent
def anthropic_messages(e: weir.Episode) -> str:
    """Streams messages until the model answers."""
    client = anthropic.Anthropic(base_url=e.anthropic_base_url, api_key=e.api_key)
    tools = [{"name": "look", "description": look.__doc__, "input_schema": PARAMETERS}]
    messages = [{"role": "user", "content": e.prompt}]
    for _ in range(3):
        with client.messages.stream(model="policy", max_tokens=64, messages=messages, tools=tools) as stream:
            reply = stream.get_final_message()
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return score(e, "".join(block.text for block in reply.content if block.type == "text"))
        messages.append({"role": "assistant", "content": reply.content})
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": look(c.input.get("box", ""))} for c in calls]
        messages.append({"role": "user", "content": results})
    return score(e, "")
