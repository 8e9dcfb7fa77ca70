"""OpenAI's SDK with a tool, unchanged but for the client's base URL: chat completions, streamed, and responses."""

import json

import openai

import weir
from boxes import PARAMETERS, look, score


@weir.agent
def openai_chat(e: weir.Episode) -> str:
    """Streams chat completions until the model answers."""
    client = openai.OpenAI(base_url=e.base_url, api_key=e.api_key)
    tools = [{"type": "function", "function": {"name": "look", "description": look.__doc__, "parameters": PARAMETERS}}]
    messages = [{"role": "user", "content": e.prompt}]
    for _ in range(3):
        with client.chat.completions.stream(model="policy", messages=messages, tools=tools) as stream:
            message = stream.get_final_completion().choices[0].message
        if not message.tool_calls:
            return score(e, message.content)
        messages.append(message)
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": look(json.loads(call.function.arguments).get("box", ""))})
    return score(e, "")


@weir.agent
def openai_responses(e: weir.Episode) -> str:
    """Asks by responses, each of which goes on from the last."""
    client = openai.OpenAI(base_url=e.base_url, api_key=e.api_key)
    tools = [{"type": "function", "name": "look", "description": look.__doc__, "parameters": PARAMETERS, "strict": False}]
    asked, last = e.prompt, None
    for _ in range(3):
        reply = client.responses.create(model="policy", input=asked, tools=tools, previous_response_id=last)
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return score(e, reply.output_text)
        last = reply.id
        asked = [{"type": "function_call_output", "call_id": c.call_id, "output": look(json.loads(c.arguments).get("box", ""))} for c in calls]
    return score(e, "")
