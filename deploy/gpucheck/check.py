"""Runs every step of the check in a process of its own, with a time limit, and writes a verdict a line and a JSON report.

A step passes, fails, is run in part, or is not run, with the reason. Exit status: 0 where none fails, 1 where any does, 2 where none could
run."""

import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time

import torch

HERE = pathlib.Path(__file__).resolve().parent
# Name, limit in seconds, lane. What is timed runs alone and first; then the lanes cpu and gpu run side by side on a GPU machine. Steps of
# a lane follow each other.
STEPS = [
    ("speed_15b_16k", 150, "alone"),
    ("speed_05b_16k", 90, "alone"),
    ("speed_7b_4k", 60, "alone"),
    ("speed_15b_4k", 90, "alone"),
    ("speed_05b_4k", 90, "alone"),
    ("speed_7b_16k", 60, "alone"),
    ("swap", 60, "alone"),
    ("native", 240, "cpu"),
    ("templates", 60, "cpu"),
    ("round_trip", 90, "cpu"),
    ("tokenizers", 150, "cpu"),
    ("gradcheck", 60, "cpu"),
    ("fsdp_gloo", 120, "cpu"),
    ("contracts", 300, "cpu"),
    ("up_qwen3", 150, "gpu"),
    ("attention", 60, "gpu"),
    ("head", 90, "gpu"),
    ("compile", 120, "gpu"),
    ("lora", 60, "gpu"),
    ("recompute", 60, "gpu"),
    ("optimizer", 60, "gpu"),
    ("deterministic", 60, "gpu"),
    ("sampler", 60, "gpu"),
    ("fsdp_one", 60, "gpu"),
    ("up_chat", 120, "gpu"),
]
NOT_RUN = 77
live = set()  # steps that run


def options():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    p.add_argument("--tiny", action="store_true", help="small sizes: shows that the check itself works, and measures nothing")
    p.add_argument("--minutes", type=float, default=9.5, help="for all steps together")
    p.add_argument("--out", default="runs/gpucheck", help="for report.json and what each step prints")
    p.add_argument("--only", default="", help="names of steps, with commas")
    p.add_argument("--strings", type=int, default=0, help="how many strings the tokenizers read")
    return p.parse_args()


def end(process):
    """Ends a step and what it has started."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sig)
        except ProcessLookupError:
            return
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            pass


def run(name, limit, o, until, scratch):
    began, left = time.monotonic(), until - time.monotonic()
    limit *= 6 if o.device == "cpu" else 1
    row = {"step": name, "verdict": "not run", "why": "", "seconds": 0.0, "numbers": {}}
    if left < 5:
        return dict(row, why="the time for all steps was over")
    place = scratch / name
    place.mkdir()
    answer = place / "answer.json"
    settings = dict(device=o.device, tiny=o.tiny, strings=o.strings, scratch=str(place), answer=str(answer))
    with open(pathlib.Path(o.out) / f"{name}.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "steps.py"), name, json.dumps(settings)], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True, env=dict(os.environ, TOKENIZERS_PARALLELISM="false"),
        )  # fmt: skip
        live.add(process)
        try:
            code = process.wait(min(limit, left))
        except subprocess.TimeoutExpired:
            code = None
        end(process)
        live.discard(process)
    row["seconds"] = round(time.monotonic() - began, 1)
    if answer.exists():
        row.update(json.loads(answer.read_text(encoding="utf-8")))
    if code is None and left < limit:
        row.update(verdict="not run", why=f"it was cut off after {row['seconds']} s: the time for all steps was over")
    elif code is None:
        row.update(verdict="failed", why=f"it took more than {limit} s")
    elif code not in (0, 1, NOT_RUN) or not answer.exists():
        row.update(verdict="failed", why=f"it ended with status {code} and no verdict: see {name}.log")
    return row


def machine(o):
    out = {"python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count(), "device": o.device, "tiny": o.tiny}
    if o.device == "cuda":
        out.update(gpu=torch.cuda.get_device_name(0), cuda=torch.version.cuda, gpus=torch.cuda.device_count())
    for module in ("transformers", "tokenizers", "jinja2", "numpy"):
        try:
            out[module] = __import__(module).__version__
        except Exception as e:  # an import may fail in any way: it is missing then
            out[module] = f"none: {type(e).__name__}"
    return out


def main():
    o = options()
    if o.device == "auto":
        o.device = "cuda" if torch.cuda.is_available() else "cpu"
    if o.device == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu-check: PyTorch sees no GPU here: --device cpu --tiny shows that the check itself works")
    o.strings = o.strings or (2000 if o.tiny else 100_000)
    wanted = [s for s in o.only.split(",") if s]
    unknown = set(wanted) - {s[0] for s in STEPS}
    if unknown:
        sys.exit(f"gpu-check: no such step: {', '.join(sorted(unknown))}: there are {', '.join(s[0] for s in STEPS)}")
    steps = [s for s in STEPS if not wanted or s[0] in wanted]
    os.makedirs(o.out, exist_ok=True)
    here = machine(o)
    print("gpu-check:", json.dumps(here), flush=True)

    def stop(*_):
        for process in list(live):
            end(process)
        os._exit(130)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    began = time.monotonic()
    until = began + 60 * o.minutes
    rows, lock = [], threading.Lock()
    with tempfile.TemporaryDirectory(prefix="gpucheck-") as scratch:

        def lane(mine):
            for name, limit, _ in mine:
                row = run(name, limit, o, until, pathlib.Path(scratch))
                with lock:
                    rows.append(row)
                    print(f"{row['verdict']:8} {name:14} {row['seconds']:6.1f} s  {row['why']}", flush=True)

        if o.device == "cpu":
            lanes = [steps]
        else:
            lane([s for s in steps if s[2] == "alone"])
            lanes = [[s for s in steps if s[2] == x] for x in ("cpu", "gpu")]
        threads = [threading.Thread(target=lane, args=(x,)) for x in lanes]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    rows.sort(key=lambda r: [s[0] for s in STEPS].index(r["step"]))
    counts = {v: sum(r["verdict"] == v for r in rows) for v in ("passed", "partly", "failed", "not run")}
    report = {"machine": here, "seconds": round(time.monotonic() - began, 1), "counts": counts, "steps": rows}
    (pathlib.Path(o.out) / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"gpu-check: {counts['passed']} passed, {counts['partly']} in part, {counts['failed']} failed, {counts['not run']} not run: {o.out}/report.json")
    sys.exit(1 if counts["failed"] else 0 if counts["passed"] + counts["partly"] else 2)


main()
