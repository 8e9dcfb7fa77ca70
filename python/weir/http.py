"""JSON over HTTP, as a client."""

import json
import urllib.request
from collections.abc import Mapping
from typing import Any


def post(url: str, body: Any, key: str = "", headers: Mapping[str, str] | None = None, timeout: float | None = None) -> Any:
    """Posts a value and returns the answer's; None where the answer has no body. key is a bearer token, timeout is in seconds."""
    sent = {"Content-Type": "application/json", **(headers or {})}
    if key:
        sent["Authorization"] = "Bearer " + key
    request = urllib.request.Request(url, json.dumps(body).encode(), sent)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        text = answer.read()
    return json.loads(text) if text else None
