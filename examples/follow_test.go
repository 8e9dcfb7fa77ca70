package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/realpython"
)

// A stand-in for the client writes down what it is called with. The follower sends each record once, also when it is started again.
func TestTheFollowerSendsEachRecordOnce(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: examples/follow_wandb.py was not run")
	}
	for _, client := range []string{"wandb", "trackio"} {
		dir, stand := t.TempDir(), t.TempDir()
		calls := filepath.Join(stand, "calls")
		require.NoError(t, os.WriteFile(filepath.Join(stand, client+".py"), []byte(`
def note(*words):
    print(*words, file=open("`+calls+`", "a"))
def init(project, name, resume, config, id="none"): note("init", project, name, id, resume, sorted(config))
def log(numbers): note("log", sorted(numbers.items()))
def finish(): note("finish")
`), 0o600))
		folder := filepath.Join(dir, "mine")
		require.NoError(t, os.Mkdir(folder, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config.yaml"), []byte("run: {name: mine}\n"), 0o600))
		write := func(text string) {
			f, err := os.OpenFile(filepath.Join(folder, "metrics.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			require.NoError(t, err)
			_, err = f.WriteString(text)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		follow := func(args ...string) string {
			cmd := exec.CommandContext(t.Context(), python, append([]string{"follow_wandb.py", folder, "--project", "p", "--to", client}, args...)...)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+stand)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			told, err := os.ReadFile(calls)
			require.NoError(t, err)
			require.NoError(t, os.Remove(calls))
			return string(told)
		}
		write(`{"type":"step_done","step":1,"policy_version":1,"metrics":{"reward/mean":0.5}}` + "\n{cut\n" + `{"type":"run_done","step":1`)
		id := map[string]string{"wandb": "mine", "trackio": "none"}[client]
		require.Equal(t, "init p mine "+id+" allow ['config.yaml']\nlog [('policy_version', 1), ('reward/mean', 0.5)]\nfinish\n", follow("--once"))
		write(`,"policy_version":1}` + "\n" + `{"type":"tested","step":2,"policy_version":2,"metrics":{"time/total":3}}` + "\n")
		told := follow()
		require.Equal(t, 1, strings.Count(told, "log"), told)
		require.Contains(t, told, "log [('policy_version', 2), ('time/total', 3)]\nfinish\n")
		// Finding 4 of the eighth reader: what came after an earlier end of the run was not sent before another start.
		require.NoError(t, os.Remove(filepath.Join(folder, client+".sent")))
		write(`{"type":"step_done","step":3,"policy_version":3,"metrics":{"reward/mean":1}}` + "\n")
		write(`{"type":"tested","step":3,"policy_version":3,"metrics":{"time/total":4}}` + "\n")
		require.Equal(t, 4, strings.Count(follow(), "log"))
		// A low finding of the eighth reader: of a run that was made again, the lines beyond the place in the older file were sent alone.
		require.NoError(t, os.Remove(filepath.Join(folder, "metrics.jsonl")))
		for step := range 9 {
			write(fmt.Sprintf(`{"at":"2026-02-02","type":"step_done","step":%d,"policy_version":1,"metrics":{"reward/mean":1}}`+"\n", step))
		}
		require.Equal(t, 9, strings.Count(follow("--once"), "log"))
		require.NotContains(t, follow("--once"), "log")
	}
}

// MLflow has other calls: its run is gone on with under its id.
func TestTheFollowerGoesOnWithARunOfMLflow(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: examples/follow_wandb.py was not run")
	}
	stand, folder := t.TempDir(), t.TempDir()
	calls := filepath.Join(stand, "calls")
	require.NoError(t, os.WriteFile(filepath.Join(stand, "mlflow.py"), []byte(`
import types
def note(*words):
    print(*words, file=open("`+calls+`", "a"))
def set_experiment(name): note("experiment", name)
def start_run(run_id=None, run_name=None):
    note("start", run_id, run_name)
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id="id1"))
def log_text(text, file): note("text", file)
def log_metrics(numbers, step): note("log", step, sorted(numbers.items()))
def end_run(): note("end")
`), 0o600))
	name := filepath.Base(folder)
	follow := func(line string) string {
		metrics := filepath.Join(folder, "metrics.jsonl")
		before, _ := os.ReadFile(metrics) // none at first
		require.NoError(t, os.WriteFile(metrics, append(before, line+"\n"...), 0o600))
		cmd := exec.CommandContext(t.Context(), python, "follow_wandb.py", folder, "--project", "p", "--to", "mlflow", "--once")
		cmd.Env = append(os.Environ(), "PYTHONPATH="+stand)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		told, err := os.ReadFile(calls)
		require.NoError(t, err)
		require.NoError(t, os.Remove(calls))
		return string(told)
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.yaml"), []byte("run: {}\n"), 0o600))
	require.Equal(t, "experiment p\nstart None "+name+"\ntext config.yaml\nlog 1 [('policy_version', 1), ('reward/mean', 0.5)]\nend\n",
		follow(`{"type":"step_done","step":1,"policy_version":1,"metrics":{"reward/mean":0.5}}`))
	require.Equal(t, "experiment p\nstart id1 None\nlog 2 [('policy_version', 2), ('time/total', 3)]\nend\n",
		follow(`{"type":"tested","step":2,"policy_version":2,"metrics":{"time/total":3}}`))
	require.Contains(t, follow(`{"type":"step_done","step":3,"policy_version":3,"metrics":{"reward/source/a+b":1}}`), "('reward/source/a_b', 1)")
}

// Weights & Biases' own client, offline, and trackio's write down each number of each record with its policy version.
func TestThePublishedClientsTakeWhatTheFollowerSends(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"wandb", "trackio"} {
		t.Run(client, func(t *testing.T) {
			python := realpython.Interpreter(t, client)
			dir := t.TempDir()
			folder := filepath.Join(dir, "mine")
			require.NoError(t, os.Mkdir(folder, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "metrics.jsonl"), []byte(
				`{"type":"step_done","step":1,"policy_version":1,"metrics":{"reward/mean":0.5}}`+"\n"+
					`{"type":"step_done","step":2,"policy_version":2,"metrics":{"reward/mean":0.75}}`+"\n"+
					`{"type":"evaluated","step":2,"policy_version":1,"metrics":{"eval/exact_match":0.25}}`+"\n"+
					`{"type":"tested","step":2,"policy_version":2}`+"\n"), 0o600))
			program, err := filepath.Abs("follow_wandb.py")
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), python, program, folder, "--project", "p", "--to", client)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "WANDB_MODE=offline", "WANDB_SILENT=true", "WANDB_DIR="+dir, "TRACKIO_DIR="+dir, "HOME="+dir)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			pattern := map[string]string{"wandb": filepath.Join(dir, "wandb", "offline-run-*", "*.wandb"), "trackio": filepath.Join(dir, "*.db*")}[client]
			files, err := filepath.Glob(pattern)
			require.NoError(t, err)
			require.NotEmpty(t, files)
			var kept strings.Builder
			for _, file := range files {
				data, err := os.ReadFile(file)
				require.NoError(t, err)
				kept.Write(data)
			}
			for _, want := range []string{"reward/mean", "0.75", "eval/exact_match", "0.25", "policy_version"} {
				require.Contains(t, kept.String(), want)
			}
		})
	}
}

// MLflow's own client takes what the follower sends, and its own reader has each number at its version, with the configuration beside it.
func TestMLflowItselfReadsWhatTheFollowerSends(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "mlflow")
	dir := t.TempDir()
	folder := filepath.Join(dir, "mine")
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.yaml"), []byte("run: {name: mine}\n"), 0o600))
	program, err := filepath.Abs("follow_wandb.py")
	require.NoError(t, err)
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), python, args...)
		cmd.Dir = dir
		// The store of files needs no database's packages.
		cmd.Env = append(os.Environ(), "MLFLOW_TRACKING_URI=file://"+filepath.Join(dir, "store"), "MLFLOW_ALLOW_FILE_STORE=true", "DO_NOT_TRACK=1")
		var told strings.Builder
		cmd.Stderr = &told
		out, err := cmd.Output()
		require.NoError(t, err, "%s", told.String())
		return string(out)
	}
	lines := ""
	for _, line := range []string{
		`{"type":"step_done","step":1,"policy_version":1,"metrics":{"reward/mean":0.5,"reward/source/a+b":1}}`,
		`{"type":"tested","step":2,"policy_version":2,"metrics":{"reward/mean":0.75}}`,
	} {
		lines += line + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(folder, "metrics.jsonl"), []byte(lines), 0o600))
		run(program, folder, "--project", "p", "--to", "mlflow", "--once")
	}
	require.JSONEq(t, `{
		"name": "mine", "config": "run: {name: mine}\n", "runs": 1,
		"reward/mean": [[1, 0.5], [2, 0.75]], "reward/source/a_b": [[1, 1.0]], "policy_version": [[1, 1.0], [2, 2.0]]
	}`, run("-c", `
import json, mlflow
client = mlflow.MlflowClient()
runs = client.search_runs([client.get_experiment_by_name("p").experiment_id])
told = {name: [[m.step, m.value] for m in client.get_metric_history(runs[0].info.run_id, name)] for name in runs[0].data.metrics}
config = mlflow.artifacts.load_text(runs[0].info.artifact_uri + "/config.yaml")
print(json.dumps(dict(told, name=runs[0].info.run_name, config=config, runs=len(runs))))
`))
}

// The program that reads the log of wandb's client by the classes of its own package: frames of LevelDB's log, and a record in each.
const readWandb = `
import glob, json, struct, sys
from wandb.proto import wandb_internal_pb2 as classes
data, at, whole, out = open(glob.glob(sys.argv[1] + "/wandb/offline-run-*/*.wandb")[0], "rb").read(), 7, b"", []
while at + 7 <= len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
    if kind == 0:
        break
    whole, at = whole + data[at + 7 : at + 7 + size], at + 7 + size
    if kind in (1, 4):  # the whole, or the last part
        record, whole = classes.Record.FromString(whole), b""
        if record.WhichOneof("record_type") == "history":
            items = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            out.append({k: v for k, v in items.items() if not k.startswith("_")})
print(json.dumps(out))
`

// What wandb's client wrote is read by its own package's classes: each record, with all of its numbers.
func TestTheClassesOfWandbReadWhatTheFollowerSends(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "wandb")
	dir := t.TempDir()
	folder := filepath.Join(dir, "mine")
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "metrics.jsonl"), []byte(
		`{"type":"step_done","step":1,"policy_version":1,"metrics":{"reward/mean":0.5}}`+"\n"+
			`{"type":"tested","step":2,"policy_version":2,"metrics":{"reward/mean":0.75,"eval/exact_match":0.25}}`+"\n"), 0o600))
	program, err := filepath.Abs("follow_wandb.py")
	require.NoError(t, err)
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), python, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "WANDB_MODE=offline", "WANDB_SILENT=true", "WANDB_DIR="+dir, "HOME="+dir)
		var told strings.Builder
		cmd.Stderr = &told
		out, err := cmd.Output()
		require.NoError(t, err, "%s", told.String())
		return string(out)
	}
	run(program, folder, "--project", "p")
	require.JSONEq(t, `[{"policy_version": 1, "reward/mean": 0.5}, {"policy_version": 2, "reward/mean": 0.75, "eval/exact_match": 0.25}]`, run("-c", readWandb, dir))
}
