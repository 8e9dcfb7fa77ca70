"""What people's programs do with OpenAI's own client at weir serve. The policy answers the last message: "say X" with X, "look" with a call of
look, "twice" with two calls, "late" when /let was asked."""

import asyncio
import json
import os
import sys
import threading
import time
import traceback
import urllib.request

import openai
import pydantic

BASE = os.environ["OPENAI_BASE_URL"]
client = openai.OpenAI(max_retries=0)
M = "weir"


def user(text):
    return [{"role": "user", "content": text}]


LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def whole():
    r = client.chat.completions.create(
        model=M, messages=user("say hello"), max_tokens=50, temperature=0.3, seed=1, logprobs=True, reasoning_effort="low", verbosity="low",
        prompt_cache_retention="24h", user="me", store=False, metadata={"a": "b"},
    )
    same((r.choices[0].message.content, r.choices[0].finish_reason), ("hello", "stop"))
    assert len(r.choices[0].logprobs.content) == r.usage.completion_tokens
    r = client.chat.completions.create(model=M, messages=user("say hello"), max_tokens=3, n=3)
    same([(c.index, c.message.content, c.finish_reason) for c in r.choices], [(i, "hel", "length") for i in range(3)])
    same(client.chat.completions.create(model=M, messages=user("say a STOP b"), stop=["STOP"]).choices[0].message.content, "a ")


def streams():
    events = list(client.chat.completions.create(model=M, messages=user("say on and on"), stream=True, stream_options={"include_usage": True}))
    same("".join(c.choices[0].delta.content or "" for c in events if c.choices), "on and on")
    assert events[-1].usage.completion_tokens > 0
    for n in (1, 2, 5):
        with client.chat.completions.stream(model=M, messages=user("say so"), n=n) as s:
            for _ in s:
                pass
            choices = s.get_final_completion().choices
        same([(c.index, c.message.content, c.message.role) for c in choices], [(i, "so", "assistant") for i in range(n)])
        with client.chat.completions.stream(model=M, messages=user("twice"), n=n, tools=[LOOK]) as s:
            choices = s.get_final_completion().choices
        same([(c.finish_reason, c.message.role, [t.function.arguments for t in c.message.tool_calls]) for c in choices],
             [("tool_calls", "assistant", ['{"at": "7"}', '{"at": "8"}'])] * n)


def waits():
    def let():
        time.sleep(0.1)  # for pings to come
        urllib.request.urlopen(BASE[: -len("/v1")] + "/let").read()

    threading.Thread(target=let).start()
    with client.chat.completions.stream(model=M, messages=user("late")) as s:
        same(s.get_final_completion().choices[0].message.content, "now")


def tools():
    messages = user("look")
    r = client.chat.completions.create(model=M, messages=messages, tools=[LOOK])
    call = r.choices[0].message.tool_calls[0]
    same((r.choices[0].finish_reason, json.loads(call.function.arguments)), ("tool_calls", {"at": "7"}))
    messages += [r.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "say a box"}]
    same(client.chat.completions.create(model=M, messages=messages, tools=[LOOK]).choices[0].message.content, "a box")
    one = client.chat.completions.create(model=M, messages=user("twice"), tools=[LOOK], parallel_tool_calls=False)
    same(len(one.choices[0].message.tool_calls), 1)


def parses():
    class Where(pydantic.BaseModel):
        at: int

    raw = client.chat.completions.with_raw_response.parse(model=M, messages=user('say {"at": 3}'), response_format=Where, top_p=0.9)
    same(raw.headers["weir-ignored"], "top_p, response_format")
    same(raw.parse().choices[0].message.parsed, Where(at=3))
    with client.chat.completions.stream(model=M, messages=user('say {"at": 3}'), response_format=Where) as s:
        same(s.get_final_completion().choices[0].message.parsed, Where(at=3))

    class look(pydantic.BaseModel):
        at: str

    r = client.chat.completions.parse(model=M, messages=user("look"), tools=[openai.pydantic_function_tool(look)], tool_choice="required")
    same(r.choices[0].message.tool_calls[0].function.parsed_arguments, look(at="7"))


def completions():
    r = client.completions.create(model=M, prompt=["say a", "say b"], max_tokens=20, n=2, logprobs=1)
    same([c.index for c in r.choices], [0, 1, 2, 3])
    text = ["", ""]
    for e in client.completions.create(model=M, prompt="say a", max_tokens=20, n=2, stream=True):
        for c in e.choices:
            text[c.index] += c.text
    same(text, ["a", "a"])


def at_once():
    async def ask_all():
        c = openai.AsyncOpenAI(max_retries=0)
        got = await asyncio.gather(*(c.chat.completions.create(model=M, messages=user("say it")) for _ in range(8)))
        await c.close()
        return got

    got = asyncio.run(ask_all())
    same({r.choices[0].message.content for r in got}, {"it"})
    same(len({r.id for r in got}), 8)


def refusals():
    def refused(kind, ask):
        try:
            ask()
        except kind as e:
            return e
        raise AssertionError(f"no {kind.__name__}")

    e = refused(openai.BadRequestError, lambda: client.chat.completions.create(model=M, messages=user("say x"), top_logprobs=3, logprobs=True))
    same(e.code, "unsupported_parameter")
    refused(openai.BadRequestError, lambda: client.chat.completions.create(model=M, messages=user("say x"), top_p=0.5, extra_body={"return_token_ids": True}))
    refused(openai.BadRequestError, lambda: client.completions.create(model=M, prompt="say x", echo=True))
    refused(openai.NotFoundError, lambda: client.chat.completions.create(model="other", messages=user("say x")))
    refused(openai.NotFoundError, lambda: client.models.retrieve("other"))
    refused(openai.NotFoundError, lambda: client.embeddings.create(model=M, input="x"))
    refused(openai.AuthenticationError, lambda: openai.OpenAI(api_key="wrong").models.list())


def models():
    same([m.id for m in client.models.list()], [M])
    same(client.models.retrieve(M).id, M)


failed = False
for check in (whole, streams, waits, tools, parses, completions, at_once, refusals, models):
    try:
        check()
        print("ok", check.__name__, flush=True)
    except Exception:
        failed = True
        print("FAILED", check.__name__, traceback.format_exc(), flush=True)
print("versions", openai.__version__)
sys.exit(failed)
