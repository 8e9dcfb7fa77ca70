"""What people's programs do with OpenAI's and Anthropic's own clients. The policy answers the last thing that the user or a tool said:
"say X" with X, "look" with a call of look, "twice" with two calls, "count" with the next number, "late" when /let was asked,
"impatient" only to the second who asks, and what a tool said with "seen: " and that."""

import asyncio
import faulthandler
import json
import os
import sys
import threading
import time
import traceback
import urllib.request

import anthropic
import openai
import pydantic

# Checks that hang end here, with the stack of every thread, long before the test's own limit.
faulthandler.dump_traceback_later(240, exit=True)

BASE, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
client, claude = openai.OpenAI(), anthropic.Anthropic()
M = "policy"


def user(text):
    return [{"role": "user", "content": text}]


LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}
LOOK_RESPONSES = {"type": "function", "name": "look", "parameters": LOOK["function"]["parameters"], "strict": False}
LOOK_CLAUDE = {
    "name": "look", "description": "looks", "input_schema": LOOK["function"]["parameters"], "input_examples": [{"at": "7"}],
    "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True,
}


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def let_later():
    def let():
        time.sleep(0.1)  # for pings to come
        urllib.request.urlopen(BASE.split("/e/")[0] + "/let", timeout=60).read()

    threading.Thread(target=let, daemon=True).start()  # a check that failed leaves it waiting


def chat_whole():
    r = client.chat.completions.create(model=M, messages=user("say hello"), max_tokens=50, temperature=0.3, seed=1, user="me", store=False)
    same((r.choices[0].message.content, r.choices[0].finish_reason), ("hello", "stop"))
    assert r.usage.completion_tokens > 0 and r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens


def chat_stream():
    events = list(client.chat.completions.create(model=M, messages=user("say on and on"), stream=True, stream_options={"include_usage": True}))
    same("".join(c.choices[0].delta.content or "" for c in events if c.choices), "on and on")
    assert events[-1].usage.completion_tokens > 0
    with client.chat.completions.stream(model=M, messages=user("say so")) as s:
        kinds = [e.type for e in s]
        same(s.get_final_completion().choices[0].message.content, "so")
    assert "content.done" in kinds


def chat_waits():
    let_later()
    with client.chat.completions.stream(model=M, messages=user("late")) as s:
        same(s.get_final_completion().choices[0].message.content, "now")


def chat_tools():
    messages = user("look")
    r = client.chat.completions.create(model=M, messages=messages, tools=[LOOK], parallel_tool_calls=True)
    call = r.choices[0].message.tool_calls[0]
    same((r.choices[0].finish_reason, call.function.name, json.loads(call.function.arguments)), ("tool_calls", "look", {"at": "7"}))
    messages += [r.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "a box"}]
    with client.chat.completions.stream(model=M, messages=messages, tools=[LOOK]) as s:
        same(s.get_final_completion().choices[0].message.content, "seen: a box")
    with client.chat.completions.stream(model=M, messages=user("twice"), tools=[LOOK]) as s:
        calls = s.get_final_completion().choices[0].message.tool_calls
    same([json.loads(c.function.arguments) for c in calls], [{"at": "7"}, {"at": "8"}])
    one = client.chat.completions.create(model=M, messages=user("twice"), tools=[LOOK], parallel_tool_calls=False)
    same(len(one.choices[0].message.tool_calls), 1)
    bare = client.chat.completions.create(model=M, messages=user("look"))
    assert "<tool_call>" in bare.choices[0].message.content, "who offers no tools reads calls in the text"


def chat_parse():
    class Where(pydantic.BaseModel):
        at: int

    r = client.chat.completions.parse(model=M, messages=user('say {"at": 3}'), response_format=Where)
    same(r.choices[0].message.parsed, Where(at=3))

    class look(pydantic.BaseModel):
        at: str

    r = client.chat.completions.parse(model=M, messages=user("look"), tools=[openai.pydantic_function_tool(look)])
    same(r.choices[0].message.tool_calls[0].function.parsed_arguments, look(at="7"))


def responses_whole_and_on():
    first = client.responses.create(model=M, input="say one", instructions="be brief", store=True, reasoning={"effort": "low"}, truncation="auto")
    same((first.output_text, first.status), ("one", "completed"))
    second = client.responses.create(model=M, input="say two", previous_response_id=first.id)
    same((second.output_text, second.previous_response_id), ("two", first.id))
    assert client.responses.input_tokens.count(model=M, input="say one").input_tokens > 0


def responses_stream():
    with client.responses.stream(model=M, input="say so") as s:
        kinds = [e.type for e in s]
        same(s.get_final_response().output_text, "so")
    same(kinds[0], "response.created")
    let_later()
    kinds = [e.type for e in client.responses.create(model=M, input="late", stream=True)]
    same(kinds[-1], "response.completed")


def responses_tools():
    r = client.responses.create(model=M, input="look", tools=[LOOK_RESPONSES], parallel_tool_calls=False)
    call = r.output[0]
    same((call.type, json.loads(call.arguments)), ("function_call", {"at": "7"}))
    said = [{"type": "function_call_output", "call_id": call.call_id, "output": "a box"}]
    same(client.responses.create(model=M, input=said, previous_response_id=r.id, tools=[LOOK_RESPONSES]).output_text, "seen: a box")
    whole = user("look") + [o.model_dump() for o in r.output] + said
    with client.responses.stream(model=M, input=whole, tools=[LOOK_RESPONSES]) as s:
        same(s.get_final_response().output_text, "seen: a box")


def messages_whole():
    r = claude.messages.create(
        model=M, max_tokens=50, messages=user("say hello"), cache_control={"type": "ephemeral"}, metadata={"user_id": "me"},
        system=[{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}], thinking={"type": "disabled"},
    )
    same((r.content[0].text, r.stop_reason, r.stop_sequence), ("hello", "end_turn", None))
    r = claude.messages.create(model=M, max_tokens=50, messages=user("say a STOP b"), stop_sequences=["STOP"])
    same((r.content[0].text, r.stop_reason, r.stop_sequence), ("a ", "stop_sequence", "STOP"))
    r = claude.beta.messages.create(model=M, max_tokens=50, messages=user("say beta"), betas=["context-management-2025-06-27"])
    same(r.content[0].text, "beta")
    assert claude.messages.count_tokens(model=M, messages=user("say hello")).input_tokens > 0


def messages_stream():
    with claude.messages.stream(model=M, max_tokens=50, messages=user("say so STOP no"), stop_sequences=["STOP"]) as s:
        same("".join(s.text_stream), "so ")
        r = s.get_final_message()
    same((r.stop_reason, r.stop_sequence), ("stop_sequence", "STOP"))
    let_later()
    with claude.messages.stream(model=M, max_tokens=50, messages=user("late")) as s:
        same(s.get_final_text(), "now")


def messages_tools():
    messages = user("look")
    r = claude.messages.create(model=M, max_tokens=200, messages=messages, tools=[LOOK_CLAUDE])
    same((r.stop_reason, r.content[0].input), ("tool_use", {"at": "7"}))
    messages += [
        {"role": "assistant", "content": r.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": r.content[0].id, "content": [{"type": "text", "text": "a box"}]}]},
    ]
    with claude.messages.stream(model=M, max_tokens=200, messages=messages, tools=[LOOK_CLAUDE]) as s:
        same(s.get_final_text(), "seen: a box")
    with claude.messages.stream(model=M, max_tokens=200, messages=user("twice"), tools=[LOOK_CLAUDE]) as s:
        same([b.input for b in s.get_final_message().content], [{"at": "7"}, {"at": "8"}])
    r = claude.messages.create(
        model=M, max_tokens=200, messages=user("twice"), tools=[LOOK_CLAUDE], tool_choice={"type": "auto", "disable_parallel_tool_use": True}
    )
    same(len(r.content), 1)

    @anthropic.beta_tool
    def look(at: str) -> str:
        """Looks.

        Args:
            at: where
        """
        return "a box at " + at

    same(claude.beta.messages.tool_runner(model=M, max_tokens=200, messages=user("look"), tools=[look]).until_done().content[0].text, "seen: a box at 7")


def votes():
    async def ask_all():
        c, a = openai.AsyncOpenAI(), anthropic.AsyncAnthropic()
        chats = await asyncio.gather(*(c.chat.completions.create(model=M, messages=user("count")) for _ in range(5)))
        says = await asyncio.gather(*(a.messages.create(model=M, max_tokens=50, messages=user("count")) for _ in range(5)))
        await c.close()
        await a.close()
        return [r.choices[0].message.content for r in chats] + [r.content[0].text for r in says]

    same(len(set(asyncio.run(ask_all()))), 10)


def retries():
    impatient = client.with_options(timeout=0.5, max_retries=2)
    same(impatient.chat.completions.create(model=M, messages=user("impatient chat")).choices[0].message.content, "patience")
    same(claude.with_options(timeout=0.5, max_retries=2).messages.create(model=M, max_tokens=50, messages=user("impatient messages")).content[0].text, "patience")

    async def all_at_once():
        c = openai.AsyncOpenAI(timeout=0.5, max_retries=2)
        got = await asyncio.gather(*(c.chat.completions.create(model=M, messages=user("impatient all")) for _ in range(3)))
        await c.close()
        return got

    same(len({r.id for r in asyncio.run(all_at_once())}), 3)


def refusals():
    def refused(kind, ask):
        try:
            ask()
        except kind as e:
            return e
        raise AssertionError(f"no {kind.__name__}")

    e = refused(openai.BadRequestError, lambda: client.chat.completions.create(model=M, messages=user("say x"), top_p=0.5))
    same(e.code, "unsupported_parameter")
    refused(openai.BadRequestError, lambda: client.chat.completions.create(model=M, messages=user("say x"), tools=[LOOK], tool_choice="required"))
    refused(openai.AuthenticationError, lambda: openai.OpenAI(base_url=BASE.split("/e/")[0] + "/v1", api_key="wrong").models.list())
    refused(anthropic.BadRequestError, lambda: claude.messages.create(model=M, max_tokens=5, messages=user("say x"), tools=[LOOK_CLAUDE], tool_choice={"type": "any"}))
    refused(anthropic.BadRequestError, lambda: claude.messages.create(
        model=M, max_tokens=5, messages=user("say x"), output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}))
    refused(openai.NotFoundError, lambda: client.embeddings.create(model=M, input="x"))


def models():
    same([m.id for m in client.models.list()], ["policy"])
    same(client.models.retrieve("policy").id, "policy")
    same([m.id for m in claude.models.list()], ["policy"])
    same(claude.models.retrieve("policy").display_name, "policy")
    same(openai.OpenAI(base_url=BASE.split("/e/")[0] + "/v1").models.retrieve("any").id, "any")


failed = False
for check in (
    chat_whole, chat_stream, chat_waits, chat_tools, chat_parse, responses_whole_and_on, responses_stream, responses_tools,
    messages_whole, messages_stream, messages_tools, votes, retries, refusals, models,
):
    try:
        check()
        print("ok", check.__name__, flush=True)
    except Exception:
        failed = True
        print("FAILED", check.__name__, traceback.format_exc(), flush=True)
print("versions", openai.__version__, anthropic.__version__)
sys.exit(failed)
