"""The client against services of its own: python3 -m unittest discover -s tests"""

import contextlib
import email.message
import http.client
import http.server
import io
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import urllib.error
from typing import Any, Literal

import weir
import weir.http
from weir.http import post
from weir.schema import fits, schema_of
from weir.service import Answers, foreign


@weir.tool
def search(query: str, top: int = 3, kind: Literal["a", "b"] | None = None) -> list[str]:
    """Finds a passage."""
    if query == "nothing":
        raise weir.Refused("nothing found")
    if query == "bug":
        raise KeyError("a bug")
    return [query] * top


@weir.tool(free_text=True)
def echo(text: str, call: weir.Call) -> weir.Observation:
    return weir.Observation(f"{call.episode} {call.index} {text}", reward=0.5, done=True)


@weir.reward
def score(rollout: weir.Rollout) -> weir.Score | float:
    if rollout.answer == "none":
        return float("nan")
    exact = float(rollout.answer in rollout.prompt.answers)
    return weir.Score(exact - 0.02 * rollout.calls, {"exact_match": exact})


@weir.questions
def sums() -> list[dict[str, object]]:
    return [{"question": "1 + 2", "answers": ["3"]}]


class Gateway(weir.Service):
    """A stand-in for the gateway: it answers a question with its length, and keeps the outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[Any] = []
        self.asked: list[Any] = []
        super().__init__(search)

    def post(self, path: str, key: str, data: bytes) -> tuple[int, Any]:
        body = json.loads(data)
        if path == "/e/k/v1/chat/completions":
            self.asked.append(body)
            if body["messages"][-1]["content"] == "limit":
                return 403, {"error": {"message": "turn_limit"}}
            return 200, {"choices": [{"message": {"role": "assistant", "content": f" {len(body['messages'][-1]['content'])} "}}]}
        if path == "/e/k/v1/weir/finish":
            if self.outcomes:
                return 409, {"error": {"message": "the episode has its outcome already"}}
            self.outcomes.append(body)
            return 200, {"ok": True}
        if path == "/episodes":
            return 200, offer(self.url)
        return 404, {"error": path}


def offer(url: str, **more: Any) -> dict[str, Any]:
    return {
        "base_url": url + "/e/k/v1", "anthropic_base_url": url + "/e/k", "api_key": "k", "episode": "g1-a0-0", "prompt": "how long ?", "prompt_id": "7",
        "task": "t", "source": "s", "seed": 2**64 - 1, "world": {"x": 1}, "timeout_s": 60, **more,
    }


def call(**more: Any) -> dict[str, Any]:
    return {"key": "k", "run": "r", "episode": "e", "call": 1, "seed": 3, "tool": "t", **more}


class Services(unittest.TestCase):
    def test_a_tool_answers_refuses_and_fails(self) -> None:
        with weir.Service(search, echo, score, sums) as s, contextlib.redirect_stderr(io.StringIO()) as told:
            self.assertEqual(post(s.url + "/search", call(arguments={"query": "x", "top": 2})), {"text": '["x", "x"]'})
            self.assertEqual(post(s.url + "/echo", call(arguments="hello")), {"text": "e 1 hello", "reward": 0.5, "done": True})
            for query, status, words in [("nothing", 400, "nothing found"), ("bug", 500, "KeyError: 'a bug'")]:
                with self.assertRaises(urllib.error.HTTPError) as got:
                    post(s.url + "/search", call(arguments={"query": query}))
                with got.exception as error:
                    self.assertEqual((error.code, json.load(error)), (status, {"error": words}))
            # What the policy can write is refused, and the agent is told: an error of the function would look like a service that is away.
            arguments: list[tuple[dict[str, Any], str]] = [
                ({"qeury": "x"}, "unknown argument: qeury"),
                ({"top": 2}, "missing argument: query"),
                ({"query": 7}, 'query: want {"type": "string"}'),
                ({"query": "x", "top": "2"}, 'top: want {"type": "integer", "default": 3}'),
                ({"query": "x", "top": True}, 'top: want {"type": "integer", "default": 3}'),
                ({"query": "x", "kind": "c"}, 'kind: want {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "default": null}'),
            ]
            for given, words in arguments:
                with self.assertRaises(urllib.error.HTTPError) as got:
                    post(s.url + "/search", call(arguments=given))
                with got.exception as error:
                    self.assertEqual((error.code, json.load(error)), (400, {"error": words}))
            with self.assertRaises(urllib.error.HTTPError) as got:
                post(s.url + "/serach", {})
            with got.exception as error:
                self.assertEqual(json.load(error)["error"], "nothing is served at /serach: there is /echo, /score, /search, /sums")
        self.assertIn("a bug", told.getvalue())
        self.assertEqual(search("x", 1), ["x"], "from Python it is the function")

    def test_what_fits_a_schema(self) -> None:
        cases: list[tuple[Any, list[Any], list[Any]]] = [
            (str, ["", "a"], [1, None]),
            (float, [1, 0.5], ["1", True]),
            (bool, [True], [1, "true"]),
            (list[int], [[], [1]], [["1"], {}, "1"]),
            (dict[str, float], [{}, {"a": 1}], [{"a": "1"}, []]),
            (list, [["a", 1]], ["a"]),
            (Any, [1, "a", None, [{}]], []),
        ]
        for hint, right, wrong in cases:
            for value in right:
                self.assertTrue(fits(value, schema_of(hint)), (hint, value))
            for value in wrong:
                self.assertFalse(fits(value, schema_of(hint)), (hint, value))

    def test_descriptions(self) -> None:
        string = {"type": "string"}
        kind = {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "default": None}
        self.assertEqual(search.describe(), {"name": "search", "description": "Finds a passage.", "parameters": {
            "type": "object", "additionalProperties": False, "required": ["query"],
            "properties": {"query": string, "top": {"type": "integer", "default": 3}, "kind": kind}}})
        self.assertEqual(echo.describe(), {"name": "echo", "description": ""})
        self.assertEqual(sums.describe(), {"questions": [{"question": "1 + 2", "answers": ["3"]}]})
        self.assertEqual(schema_of(dict[str, list[float]]), {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}})
        with self.assertRaisesRegex(TypeError, "f: x: want an annotation"):
            weir.Tool(_unannotated())
        with self.assertRaisesRegex(TypeError, "g: y: <class 'set'>: want str, int"):
            weir.Tool(_of_a_set())

    def test_a_request_that_comes_again_is_done_once(self) -> None:
        begun, done, count = threading.Event(), threading.Event(), []

        class Slow:
            name = "slow"

            def describe(self) -> None:
                return None

            def respond(self, request: dict[str, Any]) -> dict[str, Any]:
                count.append(1)
                begun.set()
                done.wait(30)
                if len(count) == 1:
                    return {"text": "1"}
                raise KeyError("fails")

        answers, got = Answers(kept=2), []
        first = threading.Thread(target=lambda: got.append(answers.answer(Slow(), "k", {})))
        first.start()
        begun.wait(30)
        again = threading.Thread(target=lambda: got.append(answers.answer(Slow(), "k", {})))
        again.start()
        done.set()
        first.join()
        again.join()
        self.assertEqual((got, len(count)), ([(200, {"text": "1"})] * 2, 1))
        with contextlib.redirect_stderr(io.StringIO()):
            for n in (2, 3):
                self.assertEqual(answers.answer(Slow(), "other", {})[0], 500)
                self.assertEqual(len(count), n, "a failure may be tried again")

    def test_a_request_under_way_is_not_forgotten(self) -> None:
        """Finding 6 of the eighth reader: a slow call was made again where it came again after as many others as answers are kept."""
        begun, done, count = threading.Event(), threading.Event(), []

        class Slow:
            name = "slow"

            def describe(self) -> None:
                return None

            def respond(self, request: dict[str, Any]) -> dict[str, Any]:
                count.append(1)
                if request:
                    begun.set()
                    done.wait(30)
                return {"text": str(len(count))}

        answers, got = Answers(kept=2), []
        first = threading.Thread(target=lambda: got.append(answers.answer(Slow(), "k", {"slow": True})))
        first.start()
        begun.wait(30)
        for n in range(5):
            answers.answer(Slow(), str(n), {})
        again = threading.Thread(target=lambda: got.append(answers.answer(Slow(), "k", {})))
        again.start()
        again.join(0.05)
        done.set()
        first.join()
        again.join()
        self.assertEqual(got, [(200, {"text": "6"})] * 2)
        self.assertEqual(answers.answer(Slow(), "4", {}), (200, {"text": "6"}), "the newest are kept")
        self.assertEqual(answers.answer(Slow(), "0", {}), (200, {"text": "7"}), "the oldest are forgotten")

    def test_what_cannot_be_read_is_refused(self) -> None:
        """Finding 7 of the eighth reader: at arguments of many brackets the connection was closed without an answer, which looks like a service that is away."""

        @weir.tool
        def echo(a: list[Any]) -> str:
            return "done"

        with weir.Service(echo) as s:
            host, _, port = s.url.removeprefix("http://").partition(":")
            for text in ("[" * 200_000 + "]" * 200_000, "[" + "9" * 5000 + "]"):
                connection = http.client.HTTPConnection(host, int(port), timeout=10)
                connection.request("POST", "/", '{"arguments": {"a": ' + text + "}}", {"Content-Type": "application/json"})
                answer = connection.getresponse()
                self.assertEqual(answer.status, 422)
                self.assertIn("cannot be read", json.loads(answer.read())["error"])
                connection.close()

    def test_what_a_strangers_page_can_send_is_refused(self) -> None:
        ran: list[str] = []

        def shell(command: str) -> str:
            """Runs a command."""
            ran.append(command)
            return "ok"

        with weir.Service(weir.tool(shell), names=("tools.example",)) as s:
            own = s.url.removeprefix("http://")
            body = json.dumps(call(arguments={"command": "x"})).encode()
            for status, headers in [
                (200, {"Content-Type": "application/json"}),
                (200, {"Content-Type": "application/json; charset=utf-8"}),
                (200, {"Host": "[::1]:80"}),
                (421, {"Host": "evil:80"}),
                (421, {"Host": "evil.local:80", "Origin": "http://evil.local:80", "Sec-Fetch-Site": "same-origin"}),
                (200, {"Host": "Tools.Example:80"}),
                (200, {"Origin": "http://" + own}),
                (421, {"Host": "evil.example"}),
                (421, {"Host": "localhost.evil.example"}),
                (421, {"Host": ":80"}),
                (421, {"Host": "[x"}),
                (403, {"Origin": "https://evil.example"}),
                (403, {"Origin": "null"}),
                (403, {"Sec-Fetch-Site": "cross-site"}),
                (415, {"Content-Type": "text/plain"}),
                (415, {"Content-Type": "application/x-www-form-urlencoded"}),
                (411, {"Content-Length": "-1"}),
                (413, {"Content-Length": str(1 << 40)}),
            ]:
                before = len(ran)
                connection = http.client.HTTPConnection(own, timeout=10)
                with contextlib.closing(connection):
                    connection.request("POST", "/", body, headers)
                    answer = connection.getresponse()
                    told = json.loads(answer.read())
                self.assertEqual((answer.status, len(ran) - before), (status, int(status == 200)), headers)
                self.assertEqual(list(told), ["text" if status == 200 else "detail"], "no refusal that the agent is shown")

    def test_a_name_of_the_network_is_no_name_of_loopback(self) -> None:
        """Finding 13.4: on loopback a name of the local network, which others there may answer, led a stranger's page in. The rows are those of Go's internal/httpguard."""
        mine = socket.gethostname()
        rows = [("evil.example", 421, 421), ("evil.localhost.example", 421, 421), ("127.0.0.1.example", 421, 421)]
        rows += [(host, 421, 200) for host in ("evil", "ai.", "EVIL.Local", "evil.local.", "evil.lan", "evil.internal", "evil.svc", "evil.home.arpa", "evil.test", "a.ns.svc")]
        rows += [(host, 200, 200) for host in (mine, mine.upper(), "tools", "localhost", "LOCALHOST.", "weir.localhost", "127.0.0.1", "[::1]", "10.1.2.3")]
        for host, loopback, beyond in rows:
            for local in ("127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "fd00::1", "fe80::1%2"):
                want = beyond if local in ("10.1.2.3", "fd00::1", "fe80::1%2") else loopback
                headers = email.message.Message()
                headers["Host"] = host + ":8000"
                self.assertEqual((foreign(headers, ("Tools",), local) or (200,))[0], want, f"{host} at {local}")

    def test_a_key_goes_nowhere_else(self) -> None:
        class Elsewhere(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(int(self.path[1:4]))
                self.send_header("Location", f"http://localhost:{port}/else")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                asked.append(self.headers.get("Authorization"))
                self.send_error(404)

            def log_message(self, format: str, *args: Any) -> None:
                """Writes nothing."""

        asked: list[Any] = []
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
            port = server.server_port
            thread = threading.Thread(target=server.serve_forever, args=[0.02])
            thread.start()
            url = f"http://127.0.0.1:{port}"
            for status in 301, 302, 303, 307, 308:
                with self.assertRaises(urllib.error.HTTPError) as got:
                    post(f"{url}/{status}", {}, "secret")
                got.exception.close()
                self.assertEqual(got.exception.code, status)
            with self.assertRaisesRegex(RuntimeError, "it redirects to http://localhost:"):
                next(weir.episodes(url + "/302", "secret"))
            server.shutdown()
            thread.join()
        self.assertEqual(asked, [])

    def test_a_reward(self) -> None:
        turn = {"text": "x", "tool": "search", "arguments": "a", "observation": "b", "error": ""}
        request = {
            "key": "k", "run": "r", "task": "t", "episode": "e", "prompt": {"id": "1", "text": "q", "answers": ["7"], "source": "s"}, "answer": "7", "stop": "answer",
            "sampled": 3, "text": "all", "turns": [turn, {**turn, "tool": ""}],
        }
        self.assertEqual(score.respond(request), {"reward": 0.98, "components": {"exact_match": 1.0}})
        with self.assertRaisesRegex(ValueError, "reward is nan: want a finite number"):
            score.respond({**request, "answer": "none"})


def _unannotated() -> Any:
    def f(x):  # type: ignore[no-untyped-def]
        return x

    return f


def _of_a_set() -> Any:
    def g(y: set) -> str:  # type: ignore[type-arg]
        return ""

    return g


class Episodes(unittest.TestCase):
    def test_a_program_that_is_started_for_an_episode(self) -> None:
        program = """
import sys, weir
with weir.episode() as e:
    if sys.argv[1] == "raise": raise SystemExit(3)
    e.answer(e.ask(e.prompt, max_tokens=1))
    e.reward(1, seen=e.world["x"])
assert weir.episode() is e
"""
        with Gateway() as g:
            environ = {**os.environ, "WEIR_EPISODE": "g1-a0-0", "PYTHONPATH": str(pathlib.Path(__file__).parent.parent)}

            def run(how: str) -> "subprocess.CompletedProcess[str]":
                return subprocess.run([sys.executable, "-c", program, how], input=json.dumps(offer(g.url)), text=True, env=environ, capture_output=True)

            self.assertEqual(run("raise").returncode, 3)
            self.assertEqual(g.outcomes, [], "an episode that failed has no outcome")
            done = run("play")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(g.outcomes, [{"answer": "10", "reward": 1.0, "rewards": {"seen": 1.0}}])
            self.assertEqual(g.asked, [{"model": "policy", "messages": [{"role": "user", "content": "how long ?"}], "max_tokens": 1}])
            self.assertIn("the outcome of episode g1-a0-0 was refused: {\"error\"", run("play").stderr, "a second outcome")

    def test_a_trial_posts_nothing(self) -> None:
        with Gateway() as g, unittest.mock.patch.dict(os.environ, {"OPENAI_BASE_URL": g.url + "/e/k/v1", "OPENAI_API_KEY": "k"}):
            os.environ.pop("WEIR_EPISODE", None)
            with weir.episode("abc") as e:
                e.answer(e.ask(e.prompt))
            self.assertEqual((dict(e.outcome), g.outcomes), ({"answer": "3"}, []))
            with self.assertRaisesRegex(weir.NoEpisodeError, "WEIR_EPISODE is not set"):
                weir.episode()

    def test_a_service_plays_episodes(self) -> None:
        @weir.agent
        def player(e: weir.Episode) -> str | None:
            e.reward(0.5, exact_match=0)
            if e.prompt == "silent":
                return None
            return e.ask(e.prompt)

        with Gateway() as g, weir.Service(player) as s, contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(post(s.url + "/", offer(g.url)), {"answer": "10", "reward": 0.5, "rewards": {"exact_match": 0.0}})
            self.assertEqual(post(s.url + "/player", offer(g.url, prompt="silent")), {"reward": 0.5, "rewards": {"exact_match": 0.0}})
            away = "http://127.0.0.1:9"
            for url, prompt, status in [(g.url, "limit", 500), (away, "x", 503)]:
                with self.assertRaises(urllib.error.HTTPError) as got:
                    post(s.url + "/", offer(url, prompt=prompt))
                with got.exception as error:
                    self.assertEqual(error.code, status)
        self.assertEqual(g.outcomes, [], "the answer is the outcome")

    def test_a_request_of_the_agents_own_is_not_the_models(self) -> None:
        """An address that the model wrote was taken for a model that is away: the episode was tried again, and never trained on."""

        @weir.agent
        def reader(e: weir.Episode) -> str:
            return str(post(e.ask(e.prompt), {}))

        with Gateway() as g, weir.Service(reader) as s, contextlib.redirect_stderr(io.StringIO()):
            with unittest.mock.patch.object(weir.Episode, "ask", return_value="http://127.0.0.1:9"), self.assertRaises(urllib.error.HTTPError) as got:
                post(s.url, offer(g.url))
            with got.exception as error:
                self.assertEqual(error.code, 500)

    def test_whatever_a_part_does_is_answered(self) -> None:
        """The connection was closed without an answer, and a request that came again waited for ever."""

        @weir.tool
        def run(code: str) -> object:
            if code == "exit":
                sys.exit(3)
            return weir.Observation("", reward=float(code)) if code == "nan" else weir.Observation(code.encode())  # type: ignore[arg-type]

        with weir.Service(run) as s, contextlib.redirect_stderr(io.StringIO()):
            for code in ("exit", "exit", "nan", "bytes"):
                with self.assertRaises(urllib.error.HTTPError) as got:
                    post(s.url, {"arguments": {"code": code}}, headers={"Idempotency-Key": code}, timeout=10)
                with got.exception as error:
                    self.assertEqual(error.code, 500)

    def test_coming_for_episodes(self) -> None:
        with Gateway() as g:
            for e in weir.episodes(g.url, "key"):
                with e:
                    e.answer("x")
                break
            self.assertEqual(g.outcomes, [{"answer": "x"}])
            with self.assertRaisesRegex(RuntimeError, "nothing|error"):
                next(weir.episodes(g.url + "/elsewhere", "key"))
        with self.assertRaisesRegex(ValueError, "WEIR_AGENT_KEY"), unittest.mock.patch.dict(os.environ, clear=True):
            next(weir.episodes(g.url))

    def test_an_agent_that_came_outlives_its_producer(self) -> None:
        """Finding 12b.9: a lost connection, a 503 or an episode that was cut off ended the agent's program."""
        answers: list[tuple[str, int]] = []

        class Producer(http.server.BaseHTTPRequestHandler):
            faults = iter([0, 503, 200, 0, 200, 410, 401])

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                status = 200 if self.path == "/episodes" else next(self.faults)
                answers.append((self.headers.get("X-Stainless-Retry-Count", ""), status))
                if status == 0:  # as where the producer was killed
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                base = f"http://127.0.0.1:{server.server_port}/e"
                body = {"base_url": base, "api_key": "k", "prompt": "p", "choices": [{"message": {"content": "x"}}]}
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Producer) as server, unittest.mock.patch.object(weir.http, "FIRST_PAUSE", 0.001):
            threading.Thread(target=server.serve_forever, daemon=True).start()
            came = 0
            for e in weir.episodes(f"http://127.0.0.1:{server.server_port}", "key"):
                if (came := came + 1) == 4:
                    break
                with e:
                    e.answer(e.ask(e.prompt))
            server.shutdown()
        self.assertEqual(answers, [("", 200), ("0", 0), ("1", 503), ("2", 200), ("0", 0), ("1", 200), ("", 200), ("0", 410), ("", 200), ("0", 401), ("", 200)])

    def test_an_agent_that_a_limit_refused_goes_on_with_the_next_episode(self) -> None:
        """Finding 13.1: the first request that a limit refused ended the agent's program, and its episode waited for its time limit, or went back and was never trained on."""

        class Elsewhere(Exception):
            """What another client raises."""

        limit, window, own, over = (403, "turn_limit"), (400, "context_length_exceeded"), (409, "no_limit"), (409, "episode_over")
        ended, lost, plain = (200, ""), (0, ""), (400, "unknown_parameter")
        rows: list[tuple[str, list[tuple[int, str]], list[tuple[int, str]], bool]] = [
            ("ask", [limit], [ended], True),
            ("ask", [window], [ended], True),
            ("ask", [limit], [lost, (503, ""), ended], True),
            ("ask", [limit], [lost, over], True),
            ("ask", [limit], [(410, "episode_over")], True),
            ("ask", [limit], [(401, "invalid_api_key")], True),
            ("ask", [limit], [plain], False),  # a producer of an earlier build
            ("ask", [(400, "invalid_parameter")], [own], False),
            ("wrapped", [limit], [ended], True),
            ("wrapped", [plain], [own], False),
            ("other client", [], [ended], True),
            ("other client", [], [(410, "episode_over")], True),
            ("bug", [], [own], False),
            ("caught", [limit, (200, "")], [(200, "")], True),
            ("interrupt", [limit], [], False),
        ]
        answers: list[tuple[int, str]] = []
        outcomes: list[Any] = []

        class Producer(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, code = (200, "") if self.path == "/episodes" else answers.pop(0)
                if self.path == "/e/weir/finish":
                    outcomes.append(body)
                if status == 0:  # as where the producer was killed
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                told: dict[str, Any] = {"base_url": f"http://127.0.0.1:{server.server_port}/e", "api_key": "k", "prompt": "p", "choices": [{"message": {"content": "x"}}]}
                data = json.dumps(told if status == 200 else {"error": {"code": code}}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        def play(e: weir.Episode, how: str) -> None:
            e.answer("draft")
            try:
                if how == "bug":
                    raise KeyError(how)
                if how == "other client":
                    raise Elsewhere(how)
                e.ask(e.prompt)
            except urllib.error.HTTPError as error:
                if how == "ask":
                    raise
                with error:
                    if how == "wrapped":
                        raise Elsewhere(how) from error
                    if how == "interrupt":
                        raise KeyboardInterrupt from error
                e.answer(e.ask("less"))

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Producer) as server, unittest.mock.patch.object(weir.http, "FIRST_PAUSE", 0.001):
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for how, asked, finished, goes_on in rows:
                answers[:] = asked + finished
                outcomes.clear()
                came, raised = 0, ""
                with contextlib.redirect_stderr(io.StringIO()) as told:
                    try:
                        for e in weir.episodes(f"http://127.0.0.1:{server.server_port}", "key"):
                            if (came := came + 1) == 2:
                                break
                            with e:
                                play(e, how)
                    except (Exception, KeyboardInterrupt) as error:
                        raised = type(error).__name__
                        if isinstance(error, urllib.error.HTTPError):
                            error.close()
                row = (how, asked, finished)
                want = {"ask": "HTTPError", "bug": "KeyError", "interrupt": "KeyboardInterrupt"}.get(how, "Elsewhere")
                self.assertEqual((came, raised), (2, "") if goes_on else (1, want), row)
                self.assertEqual(answers, [], row)
                self.assertEqual(outcomes, [{"answer": "x"} if how == "caught" else {"failed": True}] * len(finished), row)
                self.assertEqual("Elsewhere" in told.getvalue(), goes_on and how in ("wrapped", "other client"), row)
            server.shutdown()

    def test_an_agent_comes_again_where_no_answer_comes(self) -> None:
        stuck = threading.Event()

        class Stuck(Gateway):
            asked_for = 0

            def post(self, path: str, key: str, data: bytes) -> tuple[int, Any]:
                self.asked_for += path == "/episodes"
                if self.asked_for == 1:
                    stuck.wait(10)  # as where the machine is gone
                return super().post(path, key, data)

        with Stuck() as g, unittest.mock.patch.object(sys.modules["weir.agent"], "CLAIM_TIMEOUT", 0.2):
            with next(weir.episodes(g.url, "key", pause=0.01)) as e:
                e.answer("x")
            self.assertEqual((g.asked_for, g.outcomes), (2, [{"answer": "x"}]))
            stuck.set()

    def test_a_connection_notices_a_machine_that_is_gone(self) -> None:
        with Gateway() as g:
            for kind in weir.http._Connection, weir.http._SecureConnection:
                with unittest.mock.patch("ssl.SSLContext.wrap_socket", lambda self, sock, **_: sock):
                    connection = kind(g.url.removeprefix("http://"))
                    connection.connect()
                with contextlib.closing(connection):
                    self.assertTrue(connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))


class Runs(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "demo"
        archive = self.folder / "checkpoints" / "archive"
        archive.mkdir(parents=True)
        (self.folder / "metrics.jsonl").write_text(
            '{"at":"2026-11-27T05:00:00.123456789Z","type":"step_done","step":1,"policy_version":1,"metrics":{"reward/mean":0.5}}\n{cut\n'
            '{"at":"2026-11-27T05:00:01+01:00","type":"run_done","step":1,"policy_version":1,"metrics":null}\n{"at":"2026-11-27T05:00:02Z","type":"te')
        (archive / "000002.jsonl").write_text('{"id":"g2-a0-0","step":2,"fate":"rejected","reason":"stale","reward":0,"tokens":4,"sampled":2,"turns":1,"new_key":1}\n')
        (archive / "000001.jsonl").write_text('{"id":"g1-a0-0","step":1,"fate":"trained","reward":1,"tokens":4,"sampled":2,"turns":1,"started":1000,"finished":3500}\n')

    def test_metrics_and_trajectories(self) -> None:
        run = weir.Run(self.folder)
        records = list(run.metrics())
        self.assertEqual([(r.type, dict(r), r.at.microsecond) for r in records], [("step_done", {"reward/mean": 0.5}, 123456), ("run_done", {}, 0)])
        self.assertEqual([(t.id, t.fate, t.reason, t.duration.total_seconds()) for t in run.trajectories()],
                         [("g1-a0-0", "trained", "", 2.5), ("g2-a0-0", "rejected", "stale", 0)])
        self.assertEqual([r.name for r in weir.runs(self.folder.parent)], ["demo"])
        self.assertEqual(run.config, "")
        with self.assertRaisesRegex(FileNotFoundError, "there is no such folder"):
            weir.Run(self.folder / "other")

    def test_following_ends_with_the_run(self) -> None:
        found = weir.Run(self.folder).metrics(follow=True, pause=0.01)
        self.assertEqual([next(found).type, next(found).type], ["step_done", "run_done"])
        with open(self.folder / "metrics.jsonl", "a") as file:
            file.write('sted","step":1,"policy_version":1,"metrics":{}}\n')
        self.assertEqual([r.type for r in found], ["tested"])

    def test_following_goes_on_after_an_earlier_end(self) -> None:
        """Finding 4 of the eighth reader: the records of a run that was given more steps were not followed beyond its earlier end, nor those of a file that took the file's place."""
        path = self.folder / "metrics.jsonl"
        kinds = ["step_done", "tested", "step_done"]
        lines = ["".join(json.dumps({"at": "2026-11-27T18:00:00Z", "type": kind, "step": i, "policy_version": i}) + "\n" for i, kind in enumerate(some)) for some in (kinds, [*kinds, "tested"])]
        path.write_text(lines[0])
        found = weir.Run(self.folder).metrics(follow=True, pause=0.01)
        self.assertEqual([next(found).type for _ in kinds], kinds)
        path.with_suffix(".new").write_text(lines[1])
        path.with_suffix(".new").replace(path)
        self.assertEqual([record.type for record in found], [*kinds, "tested"])

    def test_frames_are_of_pandas(self) -> None:
        class Pandas:
            @staticmethod
            def DataFrame(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
                return rows

        with unittest.mock.patch.dict(sys.modules, {"pandas": Pandas}):
            rows = weir.frame(weir.Run(self.folder).metrics())
            self.assertEqual((rows[0]["reward/mean"], rows[1]["type"]), (0.5, "run_done"))
        with unittest.mock.patch.dict(sys.modules, {"pandas": None}), self.assertRaisesRegex(ImportError, "pip install pandas"):
            weir.frame([])


class Binaries(unittest.TestCase):
    def test_the_program_is_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "weir"
            program.write_text("#!/bin/sh\necho \"$@\"\n")
            program.chmod(0o755)
            environ = {**os.environ, "WEIR_BINARY": str(program), "PYTHONPATH": str(pathlib.Path(__file__).parent.parent)}
            out = subprocess.run([sys.executable, "-m", "weir", "version", "-o", "json"], env=environ, capture_output=True, text=True, check=True)
            self.assertEqual(out.stdout, "version -o json\n")
            with unittest.mock.patch.dict(os.environ, {"WEIR_BINARY": folder}), self.assertRaisesRegex(FileNotFoundError, "there is no such file"):
                weir.find_binary()


if __name__ == "__main__":
    unittest.main()
