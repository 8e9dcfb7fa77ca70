"""JSON over HTTP, as a client."""

import http.client
import itertools
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Any


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would take the key to whatever host it names, and leave the body behind."""

    def redirect_request(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str) -> None:
        return None


class _Connection(http.client.HTTPConnection):
    """A connection that notices, after a minute and a half, that the other machine is gone: an answer may take as long as it likes."""

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in ("TCP_KEEPIDLE", 30), ("TCP_KEEPALIVE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4):
            if hasattr(socket, name):
                self.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    """The same by TLS."""


class _Watched(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _SecureWatched(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req)


_OPENER = urllib.request.build_opener(_Stay, _Watched, _SecureWatched)


def post(url: str, body: Any, key: str = "", headers: Mapping[str, str] | None = None, timeout: float | None = None) -> Any:
    """Posts a value and returns the answer's; None where the answer has no body. key is a bearer token, timeout is in seconds. A redirect is an HTTPError."""
    sent = {"Content-Type": "application/json", **(headers or {})}
    if key:
        sent["Authorization"] = "Bearer " + key
    request = urllib.request.Request(url, json.dumps(body).encode(), sent)
    with _OPENER.open(request, timeout=timeout) as answer:
        text = answer.read()
    return json.loads(text) if text else None


#: The pauses between tries of post_again, in seconds: the first, which doubles, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0


def post_again(url: str, body: Any, key: str = "", within: float = 600.0) -> Any:
    """Is post, tried again for so many seconds where the connection is lost, or the answer is 408, 429 or 5xx: its server may come again. A later try says so as OpenAI's clients do."""
    ends = time.monotonic() + within
    for tries in itertools.count():
        try:
            return post(url, body, key, {"X-Stainless-Retry-Count": str(tries)})
        except urllib.error.HTTPError as refused:
            if refused.code not in (408, 429) and refused.code < 500 or time.monotonic() >= ends:
                raise
            refused.close()
        except (OSError, http.client.HTTPException):
            if time.monotonic() >= ends:
                raise
        time.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries, 10)))
