"""A record of a run: a step, or a score."""

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Record(Mapping[str, float]):
    """A line of metrics.jsonl: its numbers by their keys, which docs/metrics.md lists."""

    at: datetime.datetime
    #: step_done, evaluated, run_done or tested.
    type: str
    step: int
    #: The version that was published or scored.
    policy_version: int
    metrics: Mapping[str, float]

    def __getitem__(self, key: str) -> float:
        return self.metrics[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    def row(self) -> dict[str, Any]:
        """The record as a row of a frame."""
        return {"at": self.at, "type": self.type, "step": self.step, "policy_version": self.policy_version, **self.metrics}

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> "Record":
        """The record of a line."""
        return cls(_parse_time(line["at"]), line["type"], line["step"], line["policy_version"], dict(line.get("metrics") or {}))


def _parse_time(text: str) -> datetime.datetime:
    """The time of a line: Go writes up to nine digits of a second and Z, and Python 3.10 reads six digits and an offset."""
    text = re.sub(r"\.(\d+)", lambda m: "." + m[1][:6].ljust(6, "0"), text.replace("Z", "+00:00"))
    return datetime.datetime.fromisoformat(text)
