"""Runs: what their folders hold."""

import json
import os
import pathlib
import subprocess
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

from weir.binary import find_binary
from weir.record import Record
from weir.trajectory import Trajectory

#: The type of the last record of a run that is done.
LAST = "tested"


class Run:
    """A run's folder, live, finished or killed: docs/run-folder.md. Reading disturbs no run."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = pathlib.Path(folder)
        if not self.folder.is_dir():
            raise FileNotFoundError(f"{self.folder}: there is no such folder: a run is in runs/NAME, or below run.dir")
        self.name = self.folder.resolve().name

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def config(self) -> str:
        """The configuration that the last step was trained with, as YAML; "" where there is none yet."""
        path = self.folder / "config.yaml"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def metrics(self, follow: bool = False, pause: float = 0.5) -> Iterator[Record]:
        """The records of steps and scores, oldest first. With follow they come as the run goes on, until it is done; new lines are looked for after pause seconds.

        A run that goes on after its end, as one that is given more steps does, has further records behind it. Where another file takes the file's place, as a shadow's does when the shadow is started again, the records come from the beginning.
        """
        over = False
        for line in _json_lines(self.folder / "metrics.jsonl", follow, pause):
            if line is None and over:
                return
            if line is None or "type" not in line:
                continue
            over = line["type"] == LAST
            yield Record.from_line(line)

    def trajectories(self) -> Iterator[Trajectory]:
        """The trajectories that ended, oldest first, as far back as the archive goes: trainer.archive.bytes."""
        for path in sorted((self.folder / "checkpoints" / "archive").glob("[0-9]*.jsonl")):
            for line in _json_lines(path):
                if line is not None and "id" in line:
                    yield Trajectory.from_line(line)

    def trajectory(self, id: str) -> dict[str, Any]:
        """A trajectory with its tokens, as weir trajectory ID -o json prints it."""
        folder = self.folder.resolve()
        command = [find_binary(), "trajectory", id, "--run.dir", str(folder.parent), "--run.name", folder.name, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise LookupError(done.stderr.strip())
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def runs(folder: str | os.PathLike[str] = "runs") -> Iterator[Run]:
    """The runs of a folder, by name."""
    for path in sorted(pathlib.Path(folder).iterdir()):
        if path.name.startswith("."):  # the half of a fork that was killed
            continue
        if (path / "metrics.jsonl").exists() or (path / "checkpoints").is_dir():
            yield Run(path)


def _json_lines(path: pathlib.Path, follow: bool = False, pause: float = 0.5) -> Iterator[dict[str, Any] | None]:
    """The objects of a file of lines. A line that a crash cut is left out; with follow a file that is not there yet is waited for, and None comes whenever all lines have come."""
    idle = threading.Event()
    while follow and not path.exists():
        idle.wait(pause)
    if not path.exists():
        return
    while True:
        with open(path, "rb") as file:
            begun = b""
            while True:
                more = file.readline()
                begun += more
                if begun.endswith(b"\n"):
                    line, begun = begun, b""
                    try:
                        value = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(value, dict):
                        yield value
                elif not more:
                    if not follow:
                        return
                    if not begun:
                        yield None
                    idle.wait(pause)
                    if _replaced(path, file):
                        break


def _replaced(path: pathlib.Path, file: BinaryIO) -> bool:
    """Whether another file has taken the place of an open one, or it was cut."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False
    return not os.path.samestat(now, os.fstat(file.fileno())) or now.st_size < file.tell()
