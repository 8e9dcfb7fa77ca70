"""JSON over HTTP, as a client."""

import http.client
import json
import urllib.request
from collections.abc import Mapping
from typing import IO, Any


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would take the key to whatever host it names, and leave the body behind."""

    def redirect_request(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


def post(url: str, body: Any, key: str = "", headers: Mapping[str, str] | None = None, timeout: float | None = None) -> Any:
    """Posts a value and returns the answer's; None where the answer has no body. key is a bearer token, timeout is in seconds. A redirect is an HTTPError."""
    sent = {"Content-Type": "application/json", **(headers or {})}
    if key:
        sent["Authorization"] = "Bearer " + key
    request = urllib.request.Request(url, json.dumps(body).encode(), sent)
    with _OPENER.open(request, timeout=timeout) as answer:
        text = answer.read()
    return json.loads(text) if text else None
