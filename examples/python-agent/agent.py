#!/usr/bin/env python3
"""An agent that knows nothing of Weir: it asks a model by the chat API of OpenAI, and looks into boxes.

Each box holds a digit that no rule leads to. The agent asks the model what it wants to say of a box. When the model says "look", the agent opens the
box and shows the digit; any digit is the model's answer. A right answer is worth 1, and having looked 0.2.

    python3 agent.py --serve 8650     a service: POST / with the episode as JSON, one call an episode   (agents of type http)
    python3 agent.py                  one episode: the episode as JSON on standard input                (agents of type command)
    python3 agent.py --serve 8650 --come http://127.0.0.1:8640
                                      comes for episodes besides, with the key in WEIR_AGENT_KEY        (agents of type external)

The service also has the questions: GET /questions                                                      (tasks of type http)

The standard library is enough; with the package openai, ask() would be client.chat.completions.create(...).
"""

import http.client
import json
import os
import pathlib
import sys
import threading
import time
import urllib.request
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def inside(box):
    """The digit in a box: "box 1 2 3 ?" names it."""
    return str(zlib.crc32(box.encode()) // 7 % 10)


def ask(episode, messages):
    """One answer of the model: one word."""
    request = urllib.request.Request(
        episode["base_url"] + "/chat/completions",
        json.dumps({"model": "policy", "messages": messages, "max_tokens": 1}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + episode["api_key"]},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"].strip()


def play(episode):
    """Plays one episode, and returns its outcome."""
    box = episode["prompt"]
    messages = [{"role": "user", "content": box}]
    said = ask(episode, messages)
    looked = said == "look"
    if looked:
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": inside(box)}]
        said = ask(episode, messages)
    right = float(said == inside(box))
    return {"answer": said, "reward": right + 0.2 * looked, "rewards": {"exact_match": right, "looked": float(looked)}}


def post(url, value):
    """Posts a value as JSON."""
    request = urllib.request.Request(url, json.dumps(value).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()


def come(url):
    """Comes for episodes for ever, one after the other."""
    headers = {"Authorization": "Bearer " + os.environ["WEIR_AGENT_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(url + "/episodes", b"", headers)
    while True:
        try:
            with urllib.request.urlopen(request) as answer:
                text = answer.read()
            if text:  # else there was no episode for a while
                episode = json.loads(text)
                post(episode["base_url"] + "/weir/finish", play(episode))
        except (OSError, http.client.HTTPException) as error:  # Weir is not there yet, or took the episode back
            if getattr(error, "code", 0) == 401:
                raise  # the key is another than Weir's
            time.sleep(0.2)


class Service(BaseHTTPRequestHandler):
    """Plays an episode for each POST, and has the questions."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        rows = pathlib.Path(__file__).with_name("questions.jsonl").read_text(encoding="utf-8").splitlines()
        self.reply(200, {"questions": [json.loads(row) for row in rows]})

    def do_POST(self):
        episode = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            status, outcome = 200, play(episode)
        except OSError as error:  # the model could not be asked: the episode is tried again
            status, outcome = 503, {"error": str(error)}
        self.reply(status, outcome)

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


def main():
    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    if "--come" in options:
        for _ in range(16):
            threading.Thread(target=come, args=[options["--come"]], daemon=True).start()
    if "--serve" in options:
        Server(("127.0.0.1", int(options["--serve"])), Service).serve_forever()
    episode = json.load(sys.stdin)
    post(episode["base_url"] + "/weir/finish", play(episode))


if __name__ == "__main__":
    main()
