"""A trajectory of a run, as the archive has it."""

import datetime
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Trajectory:
    """A trajectory that ended: trained on, refused or dropped."""

    id: str
    #: The step that used it, or that was in hand when it was refused.
    step: int
    #: trained, rejected or another fate: docs/view.md.
    fate: str
    reward: float
    #: Tokens in all, those that the policy sampled, and the turns.
    tokens: int
    sampled: int
    turns: int
    #: Why it was refused; "" where it was trained on.
    reason: str = ""
    detail: str = ""
    task: str = ""
    source: str = ""
    prompt: str = ""
    #: The beginnings of the question, the accepted answers and the answer.
    question: str = ""
    accepted: str = ""
    answer: str = ""
    producer: str = ""
    #: Why the episode ended: answer, format, tokens, turns or timeout.
    stop: str = ""
    #: When its ticket was issued, its rollout began and ended, the trainer read it, and it was used or refused; in milliseconds since 1970, 0 where unknown.
    issued: int = 0
    started: int = 0
    finished: int = 0
    came: int = 0
    ended: int = 0

    @property
    def duration(self) -> datetime.timedelta:
        """How long the rollout took."""
        return datetime.timedelta(milliseconds=self.finished - self.started)

    def row(self) -> dict[str, Any]:
        """The trajectory as a row of a frame."""
        return asdict(self)

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> "Trajectory":
        """The trajectory of a line of the archive. Keys that this version of the client does not know are left out."""
        return cls(**{name: line[name] for name in _NAMES if name in line})


_NAMES = [one.name for one in fields(Trajectory)]
