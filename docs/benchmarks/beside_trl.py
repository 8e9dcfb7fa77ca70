"""GRPO by TRL and by Weir on this machine's processor: the same folder, questions, reward, batch, lengths and threads, in turn.

    go build -o weir ./cmd/weir
    python3 docs/benchmarks/beside_trl.py --weir ./weir --work /tmp/beside-trl          # --rounds 3 --steps 30

It installs beside_trl.txt into WORK/python, unless --python names an interpreter that has it; makes a model of Qwen2's shape with random weights; has Weir's cold
start teach it to turn digits around until some answers are right, and exports that folder. Each round trains it by each engine, one after the other.
The rates are of wall-clock, the first step left out. Processor seconds of a step are those of a program and all that it started: other work moves them little.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS, GROUPS, SAMPLES, RATE = 12, 16, 8, 2e-4
CONTEXT, ANSWER = 80, 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", default="weir")
    parser.add_argument("--work", default="beside-trl", type=pathlib.Path)
    parser.add_argument("--python", help="an interpreter that has beside_trl.txt; none installs it")
    parser.add_argument("--engines", default="trl,native", help="torch is Weir with model.engine torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--cold", type=int, default=200, help="steps of imitation before")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


# ---------------------------------------------------------------- in the environment with TRL


def make(folder, source, hidden, layers):
    """A folder of the tokenizer and template of source, with random weights of another size."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    config = AutoConfig.from_pretrained(source)
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = int(hidden), 3 * int(hidden), int(layers)
    config.num_attention_heads = config.num_key_value_heads = int(hidden) // 32
    config.layer_types, config.max_window_layers = ["full_attention"] * int(layers), int(layers)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def train(folder, questions, out, seed, steps, threads):
    """GRPO by TRL, with a line of figures for each step at out/steps.jsonl and the last version at out/model."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(int(threads))
    rows = [json.loads(line) for line in open(questions)]
    rows = [dict(prompt=[dict(role="user", content=r["question"])], wanted=r["answers"][0]) for r in rows if r["split"] == "train"]
    spent = dict(sampling=0.0, tokens=0, reward=0.0)

    def reward(completions, wanted, **_):
        said = [c[0]["content"].strip() for c in completions]
        rewards = [float(a == b) for a, b in zip(said, wanted)]
        spent["reward"] = sum(rewards) / len(rewards)
        return rewards

    class Timed(GRPOTrainer):
        def _generate(self, prompts):
            begun = time.perf_counter()
            got = super()._generate(prompts)
            spent["sampling"] = time.perf_counter() - begun
            spent["tokens"] = sum(len(ids) for ids in got[1])
            spent["all"] = spent["tokens"] + sum(len(ids) for ids in got[0])
            return got

        def training_step(self, *given):
            begun = time.perf_counter()
            loss = super().training_step(*given)
            spent["forward"] = time.perf_counter() - begun
            return loss

    batch = GROUPS * SAMPLES
    config = GRPOConfig(
        output_dir=out + "/trainer", use_cpu=True, bf16=False, seed=int(seed), max_steps=int(steps), per_device_train_batch_size=batch,
        num_generations=SAMPLES, generation_batch_size=batch, max_completion_length=ANSWER, temperature=1.0, beta=0.0, epsilon=0.2, loss_type="bnpo",
        learning_rate=RATE, lr_scheduler_type="constant", adam_beta2=0.99, weight_decay=0.0, max_grad_norm=1.0, gradient_checkpointing=False,
        save_strategy="no", report_to="none", logging_steps=1000, disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    trainer = Timed(model=model, reward_funcs=reward, args=config, train_dataset=Dataset.from_list(rows), processing_class=AutoTokenizer.from_pretrained(folder))
    os.makedirs(out, exist_ok=True)
    with open(out + "/steps.jsonl", "w") as file:
        from transformers import TrainerCallback

        class Note(TrainerCallback):
            def on_step_begin(self, *_, **__):
                self.at = time.perf_counter()

            def on_step_end(self, *_, **__):
                whole = time.perf_counter() - self.at
                line = dict(step=whole, sampling=spent["sampling"], training=whole - spent["sampling"], sampled=spent["tokens"], trained=spent["all"], reward=spent["reward"])
                print(json.dumps(line), file=file, flush=True)

        trainer.add_callback(Note())
        trainer.train()
    trainer.save_model(out + "/model")


# ---------------------------------------------------------------- beside it


def questions(work):
    """Numbers to turn around: a file of questions, and one of demonstrations with other numbers."""
    draw = random.Random(1)
    numbers = list(dict.fromkeys(draw.randrange(10 ** (DIGITS - 1), 10**DIGITS) for _ in range(4800)))
    with open(work / "questions.jsonl", "w") as file:
        for i, n in enumerate(numbers[:800]):
            split = "train" if i < 600 else "validation" if i < 680 else "test"
            print(json.dumps(dict(question=f"Turn {n} around.", answers=[str(n)[::-1]], split=split)), file=file)
    (work / "reverse").mkdir(exist_ok=True)
    with open(work / "reverse" / "demonstrations.jsonl", "w") as file:
        for n in numbers[800:]:
            print(json.dumps(dict(question=f"Turn {n} around.", steps=[], answer=str(n)[::-1])), file=file)


RUN = """
tasks:
  reverse:
    type: dataset
    files: [questions.jsonl]
    demonstrations: reverse/demonstrations.jsonl
    agent: speaking
    reward: {exact_match: 1, answered: 0}
agents:
  speaking: {type: chat}
trainer:
  batch_groups: %d
  group_size: %d
  minibatches: 1
  eta: 0
  depth: 0
  selection: {drop_zero_variance: false}
  sampling: {max_tokens: %d}
  limits: {max_turns: 0, max_tokens: %d}
  optimizer: {learning_rate: %g, beta2: 0.99}
  checkpoint: {keep: 3}
eval: {every: 0}
""" % (GROUPS, SAMPLES, ANSWER, CONTEXT, RATE)


def lines_in(path):
    """How many steps have ended, as the file of their figures says."""
    return sum('"reward"' in line or '"reward/mean"' in line for line in open(path)) if path and path.exists() else 0


def measured(command, work, log, watch=None, **env):
    """Runs a program. Returns the most memory of it and all that it started, in GB, and the processor seconds of a step, without the first, by when
    the steps come in watch."""
    import psutil

    begun, most, ends = time.perf_counter(), 0, {}
    with open(log, "w") as file:
        child = subprocess.Popen(command, cwd=work, stdout=file, stderr=subprocess.STDOUT, env=dict(os.environ, **env))
        own, spent = psutil.Process(child.pid), {}
        while child.poll() is None:
            held = 0
            try:
                for p in [own, *own.children(recursive=True)]:
                    held += p.memory_info().rss
                    t = p.cpu_times()
                    spent[p.pid] = t.user + t.system
            except psutil.Error:
                pass  # it ended just now
            most = max(most, held)
            ends.setdefault(lines_in(watch), sum(spent.values()))
            time.sleep(0.1)
    if child.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{open(log).read()[-3000:]}")
    ends.pop(0, None)
    first, last = min(ends, default=0), max(ends, default=0)
    return dict(wall=time.perf_counter() - begun, cpu=sum(spent.values()), cpu_step=(ends[last] - ends[first]) / (last - first) if last > first else None, memory=most / 1e9)


def steps_of(run):
    """The figures of each step of a run of Weir."""
    out = []
    for line in open(run / "metrics.jsonl"):
        record = json.loads(line)
        if record["type"] == "step_done":
            m = record["metrics"]
            out.append(dict(step=m["time/step"], sampling=m["time/wait"], training=m["time/update"], sampled=m["mismatch/tokens"], trained=m["batch/tokens"], reward=m["reward/mean"]))
    return out


def score(given, folder, temperature):
    out = subprocess.run(
        [given.weir, "eval", "--config", "run.yaml", "--model.folder", "start", "--checkpoint", folder, "--split", "test", "--questions", "120", "--temperature", str(temperature)],
        cwd=given.work, capture_output=True, text=True,
    )  # fmt: skip
    found = re.search(r"exact match ([\d.]+)", out.stdout)
    if not found:
        sys.exit(out.stdout + out.stderr)
    return float(found[1])


def flags(given, python, name, folder, seed, steps, engine):
    found = [
        given.weir, "up", "--plain", "--config", "run.yaml", "--run.name", name, "--model.folder", folder, "--run.seed", str(seed), "--trainer.steps", str(steps),
        "--eval.test_questions", "1", "--broker.listen", "127.0.0.1:0", "--telemetry.listen", "127.0.0.1:0", "--view.listen", "127.0.0.1:0",
    ]  # fmt: skip
    return found + (["--model.engine", "torch", "--torch.python", python] if engine == "torch" else [])


def prepare(given, python):
    """Makes the folder that every run starts from."""
    questions(given.work)
    (given.work / "run.yaml").write_text(RUN)
    me = str(pathlib.Path(__file__).resolve())
    subprocess.run([sys.executable, str(ROOT / "examples/own-chat/make_model.py"), "models", "reverse"], cwd=given.work, check=True)
    subprocess.run([python, me, "make", "models/random", "models/reverse", str(given.hidden), str(given.layers)], cwd=given.work, check=True)
    cold = ["--trainer.cold_start.steps", str(given.cold), "--trainer.cold_start.enough", "0.01"]
    measured(flags(given, python, "cold", "models/random", 1, 1, "native") + cold, given.work, given.work / "cold.log")
    subprocess.run([given.weir, "model", "export", "cold", "start", "--step", "0"], cwd=given.work, check=True)


def run(given, python, engine, seed):
    name = f"{engine}-{seed}"
    log = given.work / (name + ".log")
    load = os.getloadavg()[0]
    if engine == "trl":
        me = str(pathlib.Path(__file__).resolve())
        command = [python, me, "train", "start", "questions.jsonl", name, str(seed), str(given.steps), str(given.threads)]
        found = measured(command, given.work, log, given.work / name / "steps.jsonl", OMP_NUM_THREADS=str(given.threads), HF_HUB_OFFLINE="1")
        steps, folder = [json.loads(line) for line in open(given.work / name / "steps.jsonl")], name + "/model"
    else:
        more = ["--trainer.cold_start.steps", "0"]
        home = given.work / "runs" / name
        one = dict(OMP_NUM_THREADS=str(given.threads), GOMAXPROCS=str(given.threads))
        found = measured(flags(given, python, name, "start", seed, given.steps, engine) + more, given.work, log, home / "metrics.jsonl", **one)
        steps, folder = steps_of(home), f"runs/{name}/checkpoints/step_{given.steps:06d}"
    later = steps[1:]  # the first compiles, allocates and fills caches
    total = {k: sum(s[k] for s in later) for k in later[0]}
    found.update(
        engine=engine, seed=seed, load=load, step=total["step"] / len(later), sampling=total["sampled"] / total["sampling"],
        training=total["trained"] / total["training"], length=total["sampled"] / len(later) / GROUPS / SAMPLES, curve=[round(s["reward"], 2) for s in steps],
        greedy=score(given, folder, 0), drawn=score(given, folder, 1),
    )  # fmt: skip
    print(json.dumps(found), flush=True)
    return found


def main():
    if sys.argv[1:2] == ["make"]:
        return make(*sys.argv[2:])
    if sys.argv[1:2] == ["train"]:
        return train(*sys.argv[2:])
    given = arguments()
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    given.weir = str(pathlib.Path(given.weir).resolve()) if os.sep in given.weir else given.weir
    python = os.path.abspath(given.python) if given.python else str(given.work / "python/bin/python")
    if not given.python and not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", str(given.work / "python")], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", str(pathlib.Path(__file__).with_name("beside_trl.txt"))], check=True)
    if os.environ.get("BESIDE_TRL") != python:  # the environment has psutil, which this interpreter may lack
        os.environ["BESIDE_TRL"] = python
        os.execv(python, [python, *sys.argv, "--python", python])
    for engine in given.engines.split(","):
        for seed in range(1, given.rounds + 1):  # a run that is there would go on
            for old in (given.work / f"{engine}-{seed}", given.work / "runs" / f"{engine}-{seed}"):
                shutil.rmtree(old, ignore_errors=True)
    if not (given.work / "start").exists():
        prepare(given, python)
    print("start", score(given, "start", 0), score(given, "start", 1), flush=True)
    all_runs = [run(given, python, engine, seed) for seed in range(1, given.rounds + 1) for engine in given.engines.split(",")]
    heads = ("sampling tok/s", "training tok/s", "s a step", "cpu s a step", "GB", "greedy", "temp. 1", "load")
    print(f"{'engine, seed':14}" + "".join(f"{h:>16}" for h in heads))
    for r in sorted(all_runs, key=lambda r: r["engine"]):
        row = (r["sampling"], r["training"], r["step"], r["cpu_step"], r["memory"], r["greedy"], r["drawn"], r["load"])
        print(f"{r['engine'] + ', ' + str(r['seed']):14}" + "".join(f"{x:16.3g}" for x in row))


main()
