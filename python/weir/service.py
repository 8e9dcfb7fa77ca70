"""The service that answers Weir's requests: tools, rewards, questions and agents by HTTP."""

import collections
import ipaddress
import itertools
import json
import socket
import sys
import threading
import traceback
import urllib.parse
from concurrent.futures import Future
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, TypeVar

S = TypeVar("S", bound="Service")


class Refused(Exception):
    """A call that is refused: the agent is shown the words."""


class Unavailable(Exception):
    """A call that could not be tried: Weir tries it again."""


class Part(Protocol):
    """What a service serves, at the path of its name."""

    name: str

    def describe(self) -> dict[str, Any] | None:
        """How the part answers GET; None for not at all."""

    def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        """How the part answers POST."""


#: How many answers are kept for requests that come again.
KEPT = 4096


class Answers:
    """The answers by their request's key: a request that comes again waits for the first one's answer, and nothing is done twice."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._by_key: collections.OrderedDict[str, Future[tuple[int, Any]]] = collections.OrderedDict()

    def answer(self, part: Part, key: str, request: dict[str, Any]) -> tuple[int, Any]:
        """The status and the body for a request. Failures are not kept: the request may be tried again."""
        if not key:
            return respond(part, request)
        with self._lock:
            first = self._by_key.get(key)
            if first is None:
                mine: Future[tuple[int, Any]] = Future()
                self._by_key[key] = mine
                self._forget_oldest()
        if first is not None:
            return first.result()
        answer = respond(part, request)
        if answer[0] >= 500:
            with self._lock:
                self._by_key.pop(key, None)
        mine.set_result(answer)
        return answer

    def _forget_oldest(self) -> None:
        """Forgets the oldest answers beyond the bound. A request that is not answered yet is kept, however many came after it."""
        surplus = len(self._by_key) - self._kept
        if surplus > 0:
            for key in list(itertools.islice((key for key, answer in self._by_key.items() if answer.done()), surplus)):
                del self._by_key[key]


def respond(part: Part, request: dict[str, Any]) -> tuple[int, Any]:
    """The status and the body by which a part answers. Whatever the part does, there is an answer: where none came, Weir would try the call again and again."""
    try:
        body = part.respond(request)
        json.dumps(body, allow_nan=False)  # JSON has it
        return 200, body
    except Refused as refusal:
        return 400, {"error": str(refusal)}
    except Unavailable as absence:
        return 503, {"error": str(absence)}
    except BaseException as error:  # code that the policy wrote may call sys.exit
        traceback.print_exc()
        return 500, {"error": f"{type(error).__name__}: {error}"}


#: Endings of names that public DNS does not hold.
PRIVATE = (".local", ".internal", ".svc", ".lan", ".home.arpa", ".test")
#: Bounds the body of a request, in bytes: that of the largest trajectory.
MOST_BODY = 256 << 20


def foreign(headers: Message, names: tuple[str, ...], local: str) -> tuple[int, str] | None:
    """Why a request to the address local is refused: a page of another site can have a browser on this machine send it. The status and the words; None where it is taken."""
    host = headers.get("Host", "")
    if not _known(host, names, local):
        return 421, f"nothing is served under the name {host[:200]!r}: give the service its names"
    origin = headers.get("Origin", "")
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") or origin not in ("", "http://" + host, "https://" + host):
        return 403, "the request comes from another site's page"
    if headers.get("Content-Type") is not None and headers.get_content_type() != "application/json":
        return 415, "want Content-Type: application/json"
    return None


def _known(host: str, names: tuple[str, ...], local: str) -> bool:
    """Whether a Host is a name that no stranger can have lead to the address local: an address, localhost, this machine's name or one of names; beyond loopback also a name without a dot or a private name.

    On loopback such a name is nobody's need, and whoever answers names in a network that the machine visits may lead it here.
    """
    try:
        name = (urllib.parse.urlsplit("//" + host).hostname or "").removesuffix(".")
    except ValueError:
        return False
    if not name:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if name == "localhost" or name.endswith(".localhost") or name in (one.lower() for one in (*names, socket.gethostname())):
            return True
        return not _is_loopback(local) and ("." not in name or name.endswith(PRIVATE))
    return True


def _is_loopback(address: str) -> bool:
    """Whether an IP address is of loopback, also where IPv6 writes one of IPv4."""
    ip = ipaddress.ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024  # producer.concurrency calls begin at once
    daemon_threads = True


class Service:
    """Serves parts at http://host:port/NAME, a single part also at /. Use it as a context manager, or call serve. Port 0 is any free port.

    names are the names under which the service is asked, beside addresses, localhost and this machine's name, and beyond loopback private names: requests of other sites' pages are refused.
    """

    def __init__(self, *parts: Part, port: int = 0, host: str = "127.0.0.1", names: tuple[str, ...] = ()) -> None:
        self._names = names
        self._parts = {"/" + part.name: part for part in parts}
        if not parts:
            raise ValueError("nothing to serve: want tools, rewards, questions or agents")
        if len(self._parts) < len(parts):
            raise ValueError("two parts have the same name: each is served at the path of its name")
        if len(parts) == 1:
            self._parts["/"] = parts[0]
        self._answers = Answers()
        self._server = _Server((host, port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True)
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def serve_forever(self) -> None:
        """Serves until the process ends."""
        self._server.serve_forever()

    def __enter__(self: S) -> S:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def get(self, path: str) -> tuple[int, Any]:
        """The status and the body for a GET."""
        part = self._parts.get(path)
        body = part.describe() if part is not None else None
        return (200, body) if body is not None else self._missing(path)

    def post(self, path: str, key: str, data: bytes) -> tuple[int, Any]:
        """The status and the body for a POST."""
        part = self._parts.get(path)
        if part is None:
            return self._missing(path)
        try:
            request = json.loads(data)
        except (ValueError, RecursionError) as error:  # too long a number, or arguments within arguments that the policy wrote
            return 422, {"error": f"the body cannot be read as JSON: {error}"}
        if not isinstance(request, dict):
            return 422, {"error": "the body is not a JSON object"}
        return self._answers.answer(part, path + " " + key if key else "", request)

    def _missing(self, path: str) -> tuple[int, Any]:
        return 404, {"error": f"nothing is served at {path}: there is {', '.join(sorted(self._parts))}"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 120  # for a client that sends nothing

            def do_GET(self) -> None:
                self._write(*(self._refused() or service.get(self.path.partition("?")[0])))

            def do_POST(self) -> None:
                refused = self._refused()
                if refused is None:
                    data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                    self._write(*service.post(self.path.partition("?")[0], self.headers.get("Idempotency-Key", ""), data))
                    return
                self.close_connection = True  # its body is not read
                self._write(*refused)

            def _refused(self) -> tuple[int, Any] | None:
                """The status and the body for a request that is refused before its body is read; None for any other."""
                length = self.headers.get("Content-Length", "0")
                if not length.isascii() or not length.isdigit() or len(length) > 20 or "Transfer-Encoding" in self.headers:
                    return 411, {"detail": "want a Content-Length"}
                if int(length) > MOST_BODY:
                    return 413, {"detail": f"a body of {length} bytes: at most {MOST_BODY}"}
                refusal = foreign(self.headers, service._names, self.connection.getsockname()[0])
                return refusal and (refusal[0], {"detail": refusal[1]})  # under "error" the agent would be shown it

            def _write(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except ConnectionError:  # Weir hangs up where it cancels a rollout
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                """Writes no line for each call."""

        return Handler


def serve(*parts: Part, port: int, host: str = "127.0.0.1", names: tuple[str, ...] = ()) -> None:
    """Serves tools, rewards, questions and agents until the process ends: each at http://host:port/NAME, a single part also at /. names are as for Service."""
    service = Service(*parts, port=port, host=host, names=names)
    print(f"serving {', '.join(part.name for part in parts)} at {service.url}", file=sys.stderr)
    service.serve_forever()
