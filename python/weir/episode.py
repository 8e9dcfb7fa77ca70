"""An episode, as its agent sees it."""

import functools
import http.client
import json
import os
import sys
import traceback
import types
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from weir.http import post, post_again

#: The messages of a conversation, as OpenAI's chat completions take them.
Messages: TypeAlias = list[dict[str, Any]]


class NoEpisodeError(RuntimeError):
    """The program was started by nothing that gives it an episode."""


class EpisodeOverError(RuntimeError):
    """The episode of an agent that came for it is over: it was cut off, or its time has passed. The end of the with block takes it, and the agent goes on with the next episode."""


@dataclass
class Episode:
    """An episode: what the agent is asked, where it asks the model, and its outcome."""

    #: The base URLs of OpenAI's and of Anthropic's clients, and the API key of both.
    base_url: str
    anthropic_base_url: str
    api_key: str
    #: The question.
    prompt: str
    #: The episode's id, and where its question is from; "" in a trial by hand.
    id: str = ""
    prompt_id: str = ""
    task: str = ""
    source: str = ""
    #: The seed for an agent that draws numbers, 0 to 2^64-1.
    seed: int = 0
    #: What the task gives its tools; None for nothing. Never the answers.
    world: Any = None
    #: How long the episode may take, in seconds; 0 is no bound.
    timeout: float = 0
    #: Whether the end of a with block posts the outcome.
    posts: bool = True
    #: Whether the agent outlives its producer: requests are tried again for ten minutes while none answers, EpisodeOverError says that the episode is over, and the end of a with block takes the error at which a limit's
    #: refusal left the block.
    lasts: bool = False
    _outcome: dict[str, Any] = field(default_factory=dict, repr=False)
    #: The last error of a request to the model.
    _failure: Exception | None = field(default=None, repr=False)

    def answer(self, text: str) -> None:
        """Sets the answer."""
        self._outcome["answer"] = text

    def reward(self, value: float, **components: float) -> None:
        """Sets the reward, for tasks with reward: {type: posted}. components are parts of it by name, which metrics show; exact_match is the share of right answers in scores."""
        self._outcome["reward"] = float(value)
        self._outcome["rewards"] = {name: float(part) for name, part in components.items()}

    def _lost_model(self, error: BaseException) -> bool:
        """Whether an error is that complete could not reach the model. Any other request of the agent, such as one to an address that the model wrote, is its own."""
        if error is not self._failure:
            return False
        return not isinstance(error, urllib.error.HTTPError) or error.code == 429 or error.code >= 500

    @property
    def outcome(self) -> Mapping[str, Any]:
        """What was set: answer, reward and rewards."""
        return types.MappingProxyType(self._outcome)

    def complete(self, messages: str | Messages, model: str = "", **parameters: Any) -> dict[str, Any]:
        """The model's next message by OpenAI's chat completions. A text is the user's message; parameters are the API's, such as max_tokens and tools."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"model": model or os.environ.get("MODEL", "policy"), "messages": messages, **parameters}
        try:
            answer = self._send("/chat/completions", body)
        except OSError as error:
            self._failure = error
            raise
        message: dict[str, Any] = answer["choices"][0]["message"]
        return message

    def ask(self, messages: str | Messages, model: str = "", **parameters: Any) -> str:
        """The text of complete, without white space around it."""
        return str(self.complete(messages, model, **parameters)["content"] or "").strip()

    def post(self) -> None:
        """Posts the outcome. The end of a with block does so by itself, unless it raised. An episode takes one outcome."""
        try:
            self._send("/weir/finish", self._outcome)
        except urllib.error.HTTPError as refused:
            with refused:
                raise RuntimeError(f"the outcome of episode {self.id} was refused: {refused.read().decode(errors='replace')}") from None

    def _send(self, path: str, body: Any) -> Any:
        """Posts to the episode's address."""
        if not self.lasts:
            return post(self.base_url + path, body, self.api_key)
        try:
            return post_again(self.base_url + path, body, self.api_key)
        except urllib.error.HTTPError as refused:
            if refused.code not in (401, 410):  # 401: its key is known no more
                raise
            with refused:
                raise EpisodeOverError(f"episode {self.id} is over: {refused.read().decode(errors='replace')}") from None

    def __enter__(self) -> "Episode":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> bool:
        try:
            if kind is None and self.posts:
                self.post()
        except EpisodeOverError:
            pass
        if isinstance(error, EpisodeOverError):
            return True
        return self.lasts and isinstance(error, Exception) and self._ends_with(error)

    def _ends_with(self, error: Exception) -> bool:
        """Whether the episode has ended where an error left the block: a limit had refused the last request, by whatever client, or the episode is over. Any other error is the agent's own."""
        try:
            self._send("/weir/finish", {"failed": True})
        except EpisodeOverError:
            pass
        except urllib.error.HTTPError as refused:
            with refused:
                if refused.code != 409 or b'"episode_over"' not in refused.read():
                    return False
        except (OSError, http.client.HTTPException):
            return False
        if error is self._failure and isinstance(error, urllib.error.HTTPError):
            error.close()
        else:  # what the agent's own code or client raised is not lost
            print(f"episode {self.id} has ended: {''.join(traceback.format_exception_only(type(error), error)).strip()}", file=sys.stderr)
        return True

    @classmethod
    def from_offer(cls, offer: Mapping[str, Any], posts: bool = True, lasts: bool = False) -> "Episode":
        """The episode of the JSON that Weir sends: docs/gateway.md has its keys."""
        return cls(
            base_url=offer["base_url"],
            anthropic_base_url=offer.get("anthropic_base_url", ""),
            api_key=offer["api_key"],
            prompt=offer["prompt"],
            id=offer.get("episode", ""),
            prompt_id=offer.get("prompt_id", ""),
            task=offer.get("task", ""),
            source=offer.get("source", ""),
            seed=offer.get("seed", 0),
            world=offer.get("world"),
            timeout=offer.get("timeout_s", 0),
            posts=posts,
            lasts=lasts,
        )


def episode(prompt: str = "") -> Episode:
    """The episode that this program was started for, by an agent of type command: use it as a context manager.

    Where nothing started the program, prompt makes a trial: an episode with that question, whose model is that of OPENAI_BASE_URL, and whose outcome is posted nowhere.
    """
    if "WEIR_EPISODE" in os.environ:
        return _started_episode()
    if not prompt:
        raise NoEpisodeError("no episode: WEIR_EPISODE is not set, so this program was not started by an agent of type command; weir.episode(prompt) makes a trial")
    base = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    anthropic = os.environ.get("ANTHROPIC_BASE_URL", base.removesuffix("/v1"))
    return Episode(base, anthropic, os.environ.get("OPENAI_API_KEY", "none"), prompt, posts=False)


@functools.lru_cache(maxsize=1)
def _started_episode() -> Episode:
    """The episode that was written to standard input. It can be read once."""
    return Episode.from_offer(json.load(sys.stdin))
