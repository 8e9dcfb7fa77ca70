"""Agents: functions that play an episode each, for agents of types http and external."""

import http.client
import os
import threading
import urllib.error
from collections.abc import Callable, Iterator
from typing import Any

from weir.episode import Episode
from weir.http import post
from weir.service import Unavailable

Play = Callable[[Episode], str | None]

#: How long a request for an episode waits for its answer, in seconds: Weir gives one after half a minute at the latest.
CLAIM_TIMEOUT = 120.0


class Agent:
    """A function that plays an episode. Served, it is an agent of type http. The text that it returns is the answer."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.name = play.__name__
        self.__doc__ = play.__doc__

    def __call__(self, episode: Episode) -> str | None:
        return self.play(episode)

    def describe(self) -> None:
        """Nothing asks for an agent's description."""
        return None

    def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        """Plays the episode of a request and returns its outcome. Where the model cannot be reached the episode is to be tried again."""
        episode = Episode.from_offer(request, posts=False)
        try:
            text = self.play(episode)
        except OSError as error:
            if episode._lost_model(error):
                raise Unavailable(str(error)) from error
            raise  # a limit refused the request, or the agent failed: the episode ends
        if text is not None:
            episode.answer(text)
        return dict(episode.outcome)


def agent(play: Play) -> Agent:
    """Makes an agent of a function of an episode."""
    return Agent(play)


def episodes(url: str, key: str = "", pause: float = 0.2) -> Iterator[Episode]:
    """Comes for episodes at an agent of type external, for ever: each is a context manager whose end posts the outcome. Requests outlive the producer: see Episode.lasts.

    url is the agent's listen address, such as http://127.0.0.1:8640; key is by default that of WEIR_AGENT_KEY. Where Weir is away it is asked again after pause seconds. Several threads may each have an iterator.
    """
    key = key or os.environ.get("WEIR_AGENT_KEY", "")
    if not key:
        raise ValueError("key: empty: give the agents' key, or set WEIR_AGENT_KEY")
    idle = threading.Event()
    while True:
        try:
            offer = post(url.rstrip("/") + "/episodes", {}, key, timeout=CLAIM_TIMEOUT)
        except urllib.error.HTTPError as refused:
            with refused:
                if refused.code in (401, 404):
                    raise RuntimeError(f"{url}: {refused.read().decode(errors='replace')}") from None
                if refused.code < 400:
                    raise RuntimeError(f"{url}: it redirects to {refused.headers.get('Location', '')}: name the agent's own address") from None
            idle.wait(pause)
        except (OSError, http.client.HTTPException):
            idle.wait(pause)
        else:
            if offer is not None:
                yield Episode.from_offer(offer, lasts=True)
