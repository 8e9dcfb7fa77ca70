"""Sends a run's numbers to Weights & Biases, trackio or MLflow, as they come.

    pip install wandb && python3 examples/follow_wandb.py runs/demo --project weir
    pip install trackio && python3 examples/follow_wandb.py runs/demo --project weir --to trackio
    pip install mlflow && python3 examples/follow_wandb.py runs/demo --project weir --to mlflow

It reads runs/<run>/metrics.jsonl and the run's configuration beside it, so it works on a run that is up, has ended or has crashed,
on any machine that sees the folder, and the run does not wait for it. It ends when the run is done; with --once at the file's end.
Started again it sends what came since: what was sent is noted in runs/<run>/<client>.sent.
"""

import argparse
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


def lines(path, start, once):
    """Yields each whole line of a file that grows, with the place after it, and no line whenever all have come."""
    while not os.path.exists(path) and not once:
        time.sleep(1)
    with open(path, "rb") as file:
        file.seek(start)
        rest = b""
        while True:
            more = file.readline()
            rest += more
            if rest.endswith(b"\n"):
                yield rest, file.tell()
                rest = b""
            elif not more:
                if once:
                    return
                if not rest:
                    yield None, file.tell()
                time.sleep(1)


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
    start = int(open(note).read()) if os.path.exists(note) else 0
    settings = {}
    config = os.path.join(given.folder, "config.yaml")
    if os.path.exists(config):
        settings["config.yaml"] = open(config).read()
    client.init(project=given.project, name=name, id=name, resume="allow", config=settings) if given.to == "wandb" else client.init(
        project=given.project, name=name, resume="allow", config=settings
    )
    over = False
    for line, place in lines(os.path.join(given.folder, "metrics.jsonl"), start, given.once):
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
            file.write(str(place))
        os.replace(note + ".new", note)
        over = record["type"] == "tested"  # a run that was given more steps goes on after it
    client.finish()


if __name__ == "__main__":
    main()
