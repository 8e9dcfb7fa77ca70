"""Sends a run's numbers to Weights & Biases, trackio or MLflow, as they come.

    pip install wandb && python3 examples/follow_wandb.py runs/demo --project weir
    pip install trackio && python3 examples/follow_wandb.py runs/demo --project weir --to trackio
    pip install mlflow && python3 examples/follow_wandb.py runs/demo --project weir --to mlflow

It reads runs/<run>/metrics.jsonl and the run's configuration beside it, so it works on a run that is up, has ended or has crashed,
on any machine that sees the folder, and the run does not wait for it. It ends when the run is done; with --once at the file's end.
Started again it sends what came since: what was sent is noted in runs/<run>/<client>.sent. Of a run that was removed and made again, and of
a shadow that was started again, it sends everything: their file begins otherwise than the file that was sent.
"""

import argparse
import hashlib
import importlib
import json
import os
import re
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="the run's folder, such as runs/demo")
    parser.add_argument("--project", default="weir")
    parser.add_argument("--to", default="wandb", choices=["wandb", "trackio", "mlflow"], help="trackio takes the calls of wandb")
    parser.add_argument("--once", action="store_true", help="end at the end of the file")
    return parser.parse_args()


def beginning(path):
    """Which file it is: a hash of its first line, which has its time; "" before there is one."""
    with open(path, "rb") as file:
        first = file.readline()
    return hashlib.sha256(first).hexdigest()[:16] if first.endswith(b"\n") else ""


def lines(path, sent, once):
    """Yields each whole line of a file that grows, with the place after it and which file it is, and no line whenever all have come. sent are
    the place and the file of an earlier start. A file that takes the file's place is read from its beginning."""
    while not os.path.exists(path) and not once:
        time.sleep(1)
    start, of = sent
    while True:
        with open(path, "rb") as file:
            now = beginning(path)
            if of and now != of or os.fstat(file.fileno()).st_size < start:
                start = 0
            of = now
            file.seek(start)
            rest = b""
            while True:
                more = file.readline()
                rest += more
                if rest.endswith(b"\n"):
                    of = of or beginning(path)
                    yield rest, file.tell(), of
                    rest = b""
                elif not more:
                    if once:
                        return
                    if not rest:
                        yield None, file.tell(), of
                    time.sleep(1)
                    if os.path.exists(path) and (not os.path.samestat(os.stat(path), os.fstat(file.fileno())) or os.stat(path).st_size < file.tell()):
                        start = 0
                        break


class MLflow:
    """MLflow under the calls of wandb. The id of MLflow's run is kept, so that a later start goes on with it."""

    def __init__(self, mlflow, kept):
        self.mlflow, self.kept = mlflow, kept

    def init(self, project, name, resume, config):
        self.mlflow.set_experiment(project)
        known = open(self.kept).read() if os.path.exists(self.kept) else None
        run = self.mlflow.start_run(run_id=known, run_name=None if known else name)
        if known is None:
            with open(self.kept, "w") as file:
                file.write(run.info.run_id)
            for file, text in config.items():
                self.mlflow.log_text(text, file)

    def log(self, numbers):
        # MLflow refuses other characters in a name.
        named = {re.sub(r"[^\w\-. :/]", "_", name): number for name, number in numbers.items()}
        self.mlflow.log_metrics(named, step=int(numbers["policy_version"]))

    def finish(self):
        self.mlflow.end_run()


def main():
    given = arguments()
    client = importlib.import_module(given.to)
    if given.to == "mlflow":
        client = MLflow(client, os.path.join(given.folder, "mlflow.run"))
    name = os.path.basename(os.path.abspath(given.folder))
    note = os.path.join(given.folder, given.to + ".sent")
    place, _, of = open(note).read().partition(" ") if os.path.exists(note) else ("0", "", "")
    settings = {}
    config = os.path.join(given.folder, "config.yaml")
    if os.path.exists(config):
        settings["config.yaml"] = open(config).read()
    client.init(project=given.project, name=name, id=name, resume="allow", config=settings) if given.to == "wandb" else client.init(
        project=given.project, name=name, resume="allow", config=settings
    )
    over = False
    for line, place, of in lines(os.path.join(given.folder, "metrics.jsonl"), (int(place), of), given.once):
        if line is None:
            if over:
                break
            continue
        try:
            record = json.loads(line)
        except ValueError:
            continue  # a crash cut it short
        numbers = record.get("metrics") or {}
        if numbers:
            # A score of an older version comes after newer steps: the clients' own step would refuse it, so the axis is a number
            # like any other. Choose policy_version as the x axis.
            client.log({**numbers, "policy_version": max(record["step"], record["policy_version"])})
        with open(note + ".new", "w") as file:
            file.write(f"{place} {of}")
        os.replace(note + ".new", note)
        over = record["type"] == "tested"  # a run that was given more steps goes on after it
    client.finish()


if __name__ == "__main__":
    main()
