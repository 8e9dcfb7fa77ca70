"""Rewards: functions that score a finished rollout, for rewards of type http."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Prompt:
    """A question with its accepted answers."""

    id: str
    text: str
    answers: list[str]
    source: str
    meta: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """A move of the agent: what the policy sampled, and the call that it made; tool is "" where it made none."""

    text: str
    tool: str = ""
    arguments: str = ""
    observation: str = ""
    error: str = ""


@dataclass(frozen=True)
class Rollout:
    """A finished rollout."""

    #: The same for every attempt at scoring it.
    key: str
    run: str
    task: str
    episode: str
    prompt: Prompt
    #: The agent's answer; "" if there was none.
    answer: str
    #: Why the episode ended: answer, format, tokens, turns or timeout.
    stop: str
    #: How many tokens the policy sampled.
    sampled: int
    #: The whole of the last context.
    text: str
    turns: list[Turn]

    @property
    def calls(self) -> int:
        """How many calls of tools it made."""
        return sum(turn.tool != "" for turn in self.turns)

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> "Rollout":
        """The rollout of the JSON that Weir sends: docs/extending.md has its keys."""
        turns = [Turn(**turn) for turn in request["turns"]]
        return cls(**{**request, "prompt": Prompt(**request["prompt"]), "turns": turns})


@dataclass(frozen=True)
class Score:
    """The reward that the policy is trained on, and parts of it by name, which metrics show: exact_match, 0 or 1, is the share of right answers in scores."""

    reward: float
    components: Mapping[str, float] = field(default_factory=dict)


class Reward:
    """A function that scores a rollout. Called from Python it is the function."""

    def __init__(self, function: Callable[[Rollout], Score | float]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self, rollout: Rollout) -> Score | float:
        return self.function(rollout)

    def describe(self) -> None:
        """Nothing asks for a reward's description."""
        return None

    def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        """Scores the rollout of a request. A reward that is not finite is an error: the rollout is not trained on."""
        result = self.function(Rollout.from_request(request))
        score = result if isinstance(result, Score) else Score(float(result))
        components = {name: float(part) for name, part in score.components.items()}
        for name, value in [("reward", float(score.reward)), *components.items()]:
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}: want a finite number")
        return {"reward": float(score.reward), "components": components}


def reward(function: Callable[[Rollout], Score | float]) -> Reward:
    """Makes a reward of a function of a rollout."""
    return Reward(function)
