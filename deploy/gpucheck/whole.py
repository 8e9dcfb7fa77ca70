"""Weir as it is built: its own tests of the worker, and whole runs of weir up."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import torch
from common import ROOT, Failed, NotRun, fill, program, shape, weir, worker, write_safetensors

TESTS = "TestRanksAndEnginesAgreeOnEveryFamily|TestFoldersAreThoseOfTheEngineInGo|TestDecodersAgreeOnEveryFamily|TestWeightsAreSwappedInFromAFolder"
TESTS += "|TestRoundsWithDifferentGradientsAddUp|TestWeightsAfterAnEvaluationAreThoseOfTheNext"  # fully_shard, on the processor


def native(s):
    """The worker against the engine in Go: log-probabilities, entropies, values, gradients, folders, the sampler."""
    return tests(s, TESTS, "one rank on {}, groups of several on the processor")


def contracts(s):
    """The whole contracts of engine and decoder, which the engine in Go keeps too."""
    return tests(s, "TestEngineKeepsTheContract|TestDecoderKeepsTheContract", "on {}", 300)


def tests(s, names, where, limit=240):
    test = program("gpu-torch.test")
    bin = pathlib.Path(s.scratch) / "bin"
    bin.mkdir()
    (bin / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (bin / "python3").chmod(0o700)
    env = dict(os.environ, PATH=f"{bin}:{os.environ['PATH']}", WEIR_TEST_TORCH_DEVICE=s.device, CI="true", WEIR_TEST="" if s.tiny else "full")
    env.pop("VIRTUAL_ENV", None)
    args = [test, "-test.v", "-test.run", f"^({names})$", "-test.timeout", f"{limit - 20}s"]
    p = subprocess.run(args, capture_output=True, encoding="utf-8", cwd=ROOT / "gpu" / "torch", env=env)
    sys.stderr.write(p.stdout[-200000:] + p.stderr[-5000:])
    verdicts = dict((name, v) for v, name in re.findall(r"(?m)^--- (PASS|FAIL|SKIP): (\S+)", p.stdout))
    failed = [n for n, v in verdicts.items() if v == "FAIL"]
    skipped = [n for n, v in verdicts.items() if v == "SKIP"]
    absent = [n for n in names.split("|") if n not in verdicts]
    if p.returncode or failed or absent:
        raise Failed(f"failed: {', '.join(failed) or 'none'}; without a verdict: {', '.join(absent) or 'none'}; see the step's log")
    passed = [n for n, v in verdicts.items() if v == "PASS"]
    if not passed:
        raise NotRun(f"skipped: {', '.join(skipped)}")
    return f"{len(passed)} tests, {where.format(s.device)}", {"passed": passed, "not run": skipped}, skipped


# A run that the processor can do within a minute.
SMALL = ("--trainer.limits.max_tokens", "96", "--trainer.limits.max_turns", "2", "--eval.test_questions", "4", "--trainer.minibatches", "1", "--trainer.cold_start.batch", "4")


def up(s, name, steps, *more):
    """A run of weir up in the scratch folder, PyTorch training and sampling: its metrics and the scalars that matter."""
    scratch = pathlib.Path(s.scratch)
    examples = ROOT / "examples"
    weir(
        "up", "--config", str(examples / "own-chat" / "run.yaml"), "--config", str(examples / "your-gpus.yaml"), "--run.name", name, "--run.dir", "runs",
        "--torch.ranks", "1", "--torch.device", s.device, "--torch.python", sys.executable, "--trainer.steps", str(steps), "--eval.every", "0",
        "--eval.test_questions", "16", "--eval.questions", "16", *(SMALL if s.tiny else ()), *more, cwd=scratch,
    )  # fmt: skip
    found = list((scratch / "runs").rglob("metrics.jsonl"))
    if len(found) != 1:
        raise Failed(f"the run has left {len(found)} files metrics.jsonl")
    rows = [json.loads(line) for line in found[0].read_text(encoding="utf-8").splitlines()]
    rows = [r.get("metrics") or {} for r in rows]
    trained = [r for r in rows if "time/update" in r]
    if len(trained) < steps:
        raise Failed(f"the run has metrics of {len(trained)} steps of {steps}")
    mean = [r["mismatch/mean"] for r in trained if "mismatch/mean" in r]
    numbers = {k: [round(r[k], 5) for r in trained if k in r] for k in ("time/step", "time/update", "time/publish", "time/save", "mismatch/mean", "mismatch/max", "mismatch/same")}
    if not mean:
        raise Failed("no step compares the sampler's log-probabilities with the trainer's: there is no mismatch/mean", **numbers)
    if max(mean) > 0.05:
        raise Failed(f"sampler and trainer differ by {max(mean):.3g} nats a token, more than 0.05", **numbers)
    return numbers


def made(s):
    subprocess.run([sys.executable, "-B", str(ROOT / "examples/own-chat/make_model.py"), str(pathlib.Path(s.scratch) / "models")], check=True, stdout=sys.stderr)


def up_chat(s):
    program("weir")
    made(s)
    steps, cold = (2, 20) if s.tiny else (5, 200)
    small = ("--trainer.batch_groups", "4", "--trainer.group_size", "4") if s.tiny else ()
    numbers = up(s, "chat", steps, "--trainer.cold_start.steps", str(cold), *small)
    return f"{cold} steps of cold start and {steps} of training, sampler {max(numbers['mismatch/mean']):.2g} nats from the trainer", numbers


def up_qwen3(s):
    """A model of Qwen3-0.6B's shape with drawn weights, in bfloat16, with the example's tokenizer."""
    program("weir")
    made(s)
    of = shape(151936, 1024, 3072, 28, 16, 8, 128, True, norm=True)
    if s.tiny:
        of = shape(1000, 64, 96, 2, 4, 2, 32, True, norm=True)
    scratch = pathlib.Path(s.scratch)
    folder, tiny = scratch / "models" / "qwen3", scratch / "models" / "tiny"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        shutil.copy(tiny / name, folder / name)
    config = json.loads((tiny / "config.json").read_text(encoding="utf-8"))
    config.update(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=of["vocab"], hidden_size=of["hidden"], intermediate_size=of["intermediate"],
        num_hidden_layers=of["layers"], num_attention_heads=of["heads"], num_key_value_heads=of["kv_heads"], head_dim=of["head_dim"],
        rope_theta=1e6, attention_bias=False, torch_dtype="bfloat16", max_position_embeddings=4096,
    )  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    w = worker()
    policy = w.model.Policy(of, torch.float32, w.attention.plain, False, lambda: None, device=s.device, dtype=torch.bfloat16)
    params = dict(policy.named_parameters())
    fill(params)
    write_safetensors(folder / "model.safetensors", params)
    count = sum(p.numel() for p in params.values())
    del policy, params
    if s.device == "cuda":
        torch.cuda.empty_cache()
    steps = 2
    numbers = up(
        s, "qwen3", steps, "--model.folder", str(folder), "--trainer.cold_start.steps", "4", "--trainer.batch_groups", "4", "--trainer.group_size", "4",
        # Drawn weights answer nothing right: every group would be passed over, and the step would wait for others.
        "--trainer.selection.drop_zero_variance=false", "--trainer.limits.max_tokens", "96", "--trainer.limits.max_turns", "2",
        "--trainer.optimizer.learning_rate", "0.00001", "--trainer.cold_start.optimizer.learning_rate", "0.0001", "--trainer.publish.dtype", "bfloat16",
    )  # fmt: skip
    return f"{count / 1e6:.1f} M weights, {steps} steps, sampler {max(numbers['mismatch/mean']):.2g} nats from the trainer", dict(numbers, weights=count)
