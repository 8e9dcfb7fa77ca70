#!/usr/bin/env python3
"""An agent as one would write it for any model: python3 plain.py "box 1 2 3 ?" prints its answer.

It asks a model by the chat API of OpenAI, at OPENAI_BASE_URL with OPENAI_API_KEY, as clients of that API do. Each box holds a digit that no rule
leads to. When the model says "look", the agent opens the box and shows the digit, and what the model says then is the answer. Without having looked
the agent answers nothing.
"""

import json
import os
import sys
import urllib.request
import zlib


def look_into(box):
    """The digit in a box."""
    return str(zlib.crc32(box.encode()) // 7 % 10)


def ask(messages):
    """The model's answer to a conversation."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": os.environ.get("MODEL", "policy"), "messages": messages, "max_tokens": 1}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"].strip()


def main():
    box = sys.argv[1]
    messages = [{"role": "user", "content": box}]
    if ask(messages) == "look":
        messages += [{"role": "assistant", "content": "look"}, {"role": "user", "content": look_into(box)}]
        print(ask(messages))


if __name__ == "__main__":
    main()
