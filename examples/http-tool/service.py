"""A tool and a reward for Weir, with nothing but the standard library: python3 service.py 8900"""
import contextlib, json, math, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Service(BaseHTTPRequestHandler):
    def do_GET(self):  # what the tool is called
        self.answer(200, {"name": "calculator", "description": "Adds and multiplies, such as 2 + 3 * 4."})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/score":  # the reward
            exact = float(asked["answer"] in asked["prompt"]["answers"])
            calls = sum(turn["tool"] != "" for turn in asked["turns"])
            return self.answer(200, {"reward": exact - 0.02 * calls, "components": {"exact_match": exact, "calls": calls}})
        try:  # the tool
            terms = [[int(factor) for factor in term.split("*")] for term in asked["arguments"].split("+")]
            self.answer(200, {"text": str(sum(math.prod(term) for term in terms))})
        except ValueError:  # the agent is shown this
            self.answer(400, {"error": "want numbers with + and *"})

    def answer(self, status, body):
        self.send_response(status)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # Weir hangs up where it cancels a rollout
            self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_):  # no line for each call
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Service).serve_forever()
