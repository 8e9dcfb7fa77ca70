package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/machine"
)

// python is an interpreter with numpy: Debian's own first, for its packages are found by no other.
func python(t *testing.T) string {
	t.Helper()
	for _, p := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(p, "-c", "import numpy").Run() == nil {
			return p
		}
	}
	const missing = "folders are made and read back by Python, and no python3 here has numpy: apt-get install python3-numpy"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing + "; continuous integration has it and never skips this")
	return ""
}

// script runs one of testdata/folders.
func script(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), append([]string{"-B", filepath.Join("testdata", "folders", name)}, args...)...)
	var out, faults bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &faults
	require.NoError(t, cmd.Run(), "%s %v: %s", name, args, &faults)
	return out.String()
}

// runWeir runs a command line.
func runWeir(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	a := &app{doors: builtin.Doors(), args: args, memory: machine.Memory{Bytes: 1 << 40, From: "of this machine"}, console: console{out: &out, err: io.Discard}}
	cmd := a.rootCommand()
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// madeFolder makes a small folder of a family, as a version of Transformers writes it.
func madeFolder(t *testing.T, family, dialect string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), family)
	script(t, "", "make.py", family, dialect, dir)
	return dir
}

// The log-probabilities of each family, in both dialects, are those of an implementation in float64.
func TestLogprobsAreThoseOfFloat64(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var in strings.Builder
	for _, n := range []int{1, 2, 7, 64, 300} {
		ids := make([]int, n)
		for i := range ids {
			ids[i] = rng.IntN(384)
		}
		b, err := json.Marshal(ids)
		require.NoError(t, err)
		fmt.Fprintf(&in, "%s\n", b)
	}
	in.WriteString("[]\n")
	for _, made := range [][2]string{{"llama", "4"}, {"llama", "5"}, {"qwen2", "5"}, {"qwen3", "4"}} {
		t.Run(made[0]+" "+made[1], func(t *testing.T) {
			t.Parallel()
			dir := madeFolder(t, made[0], made[1])
			want := strings.Split(script(t, in.String(), "logprobs.py", dir), "\n")
			out, err := runWeir(t, in.String(), "logprobs", dir)
			require.NoError(t, err)
			got := strings.Split(out, "\n")
			require.Len(t, got, len(want))
			for i := range want[:len(want)-1] {
				var x, y []float64
				require.NoError(t, json.Unmarshal([]byte(want[i]), &x))
				require.NoError(t, json.Unmarshal([]byte(got[i]), &y))
				require.Len(t, y, len(x))
				for j := range x {
					require.LessOrEqual(t, math.Abs(x[j]-y[j]), 1e-3, "line %d, token %d", i, j)
				}
			}
		})
	}
}

func TestLogprobsNamesALineThatIsWrong(t *testing.T) {
	t.Parallel()
	dir := madeFolder(t, "qwen2", "5")
	for line, want := range map[string]string{
		`{"a":1}`: "line 2: ", `[1, 384]`: "line 2: ", `[1, -1]`: "line 2: ",
		"[" + strings.Repeat("1,", 512) + "1]": "line 2: 513 tokens, the model takes 512",
	} {
		out, err := runWeir(t, "[1]\n"+line+"\n[2]\n", "logprobs", dir)
		require.ErrorContains(t, err, want)
		require.Equal(t, "[0]\n", out)
	}
}

// sums is a file of questions.
func sums(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "questions.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"question": "two and three ?", "answers": ["five"], "split": "train"}
{"question": "two and four ?", "answers": ["six"], "split": "train"}
{"question": "one and one ?", "answers": ["two"], "split": "validation"}
{"question": "one and two ?", "answers": ["three"], "split": "test"}
`), 0o600))
	return path
}

// A folder of each family trains by one command, and comes back with other numbers and nothing else changed, as a reader in
// another language sees it.
func TestAFolderTrainsAndComesBack(t *testing.T) {
	t.Parallel()
	questions := sums(t)
	for family, dialect := range map[string]string{"llama": "4", "qwen2": "5", "qwen3": "4"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			dir, runs := madeFolder(t, family, dialect), t.TempDir()
			_, err := runWeir(t, "", "up", "--model.folder", dir, "--tasks.sums.type", "jsonl", "--tasks.sums.questions", questions,
				"--trainer.steps", "2", "--trainer.batch_groups", "1", "--trainer.group_size", "4", "--trainer.limits.max_tokens", "48",
				"--trainer.cold_start.steps", "0", "--trainer.max_dropped_groups", "2", "--trainer.optimizer.learning_rate", "0.003",
				"--broker.listen", "127.0.0.1:0", "--telemetry.listen", "", "--run.name", "mine", "--run.dir", runs)
			require.NoError(t, err)
			saved := filepath.Join(runs, "saved")
			out, err := runWeir(t, "", "model", "export", "mine", saved, "--run.dir", runs)
			require.NoError(t, err)
			require.Contains(t, out, "wrote run mine at step 2 to "+saved)
			var read struct {
				Numbers, Differ, Tensors int
				Most                     float64
			}
			require.NoError(t, json.Unmarshal([]byte(script(t, "", "read.py", dir, saved)), &read))
			require.Positive(t, read.Differ)
			require.Greater(t, read.Tensors, 10, "the training reached most tensors: %+v", read)
			require.Less(t, read.Most, 0.1, "by a little")

			// The folder is one to go on from, and the checkpoint is one too.
			for _, folder := range []string{saved, filepath.Join(runs, "mine", "checkpoints", "step_000002")} {
				out, err = runWeir(t, "[5,6,7]\n", "logprobs", folder)
				require.NoError(t, err)
				require.Equal(t, 1, strings.Count(out, "\n"))
			}
			_, err = runWeir(t, "", "model", "export", "mine", saved, "--run.dir", runs)
			require.ErrorContains(t, err, "name an empty one")
		})
	}
}

func TestModelSaysWhatAFolderIs(t *testing.T) {
	t.Parallel()
	dir := madeFolder(t, "llama", "5")
	out, err := runWeir(t, "", "model", dir, "--verify", "--tokens", "100", "-o", "json")
	require.NoError(t, err)
	var m modelAbout
	require.NoError(t, json.Unmarshal([]byte(out), &m))
	require.Equal(t, "llama", m.Family)
	require.Equal(t, []int{384, 32, 64, 2, 4, 2, 8, 512}, []int{m.Vocabulary, m.Hidden, m.Intermediate, m.Layers, m.Heads, m.KVHeads, m.HeadDim, m.MaxPositions})
	require.Equal(t, m.Parameters, m.Numbers["BF16"]+m.Numbers["F32"])
	require.Equal(t, int64(160), m.Numbers["F32"])
	require.Len(t, m.Files, 2)
	require.Equal(t, "byte-level BPE", m.Tokenizer)
	require.Equal(t, "chat_template.jinja", m.Template)
	require.Equal(t, []stopToken{{369, "<|endoftext|>"}, {371, "<|im_end|>"}}, m.StopTokens)
	require.Equal(t, 4*m.Parameters, m.Memory.Training[0].Bytes)
	require.Equal(t, int64(1<<40), m.Machine)
	out, err = runWeir(t, "", "model", dir)
	require.NoError(t, err)
	for _, want := range []string{"llama, 43.2k parameters", "slowed 8 times beyond 64", "21 tensors in 2 files", "369 <|endoftext|>", "to train", "to decode", "this machine"} {
		require.Contains(t, out, want)
	}
}

// What is wrong with a folder is named, whichever command meets it, before the run begins.
func TestABadFolderIsNamed(t *testing.T) {
	t.Parallel()
	good, questions := madeFolder(t, "qwen3", "5"), sums(t)
	for name, c := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"a missing shard": {func(dir string) error { return os.Remove(filepath.Join(dir, "model-00002-of-00002.safetensors")) }, "model-00002-of-00002.safetensors is missing"},
		"cut short": {func(dir string) error {
			return os.Truncate(filepath.Join(dir, "model-00001-of-00002.safetensors"), 3000)
		}, "cut short"},
		"a window":  {inConfig(`"use_sliding_window": false`, `"use_sliding_window": true`), "use_sliding_window is true"},
		"no angles": {inConfig(`"rope_theta": 10000.0`, `"rope_type": "default"`), "rope_theta is missing"},
		"a larger vocabulary": {
			func(dir string) error { return inConfig(`"vocab_size": 384`, `"vocab_size": 400`)(dir) },
			`tensor "model.embed_tokens.weight" has shape [384 32], the configuration says [400 32]`,
		},
	} {
		dir := filepath.Join(t.TempDir(), "bad")
		require.NoError(t, os.CopyFS(dir, os.DirFS(good)))
		require.NoError(t, c.spoil(dir), name)
		commands := [][]string{
			{"model", dir},
			{"up", "--model.folder", dir, "--tasks.sums.type", "jsonl", "--tasks.sums.questions", questions, "--run.dir", t.TempDir(), "--broker.listen", "127.0.0.1:0", "--telemetry.listen", ""},
		}
		if name == "a window" { // which Transformers has: weir model says by which engine it is trained
			out, err := runWeir(t, "", "model", dir)
			require.NoError(t, err)
			require.Contains(t, out, "Transformers")
			commands = commands[1:]
		}
		for _, command := range commands {
			_, err := runWeir(t, "[1]\n", command...)
			require.ErrorContains(t, err, c.want, "%s: %s", name, command[0])
		}
	}
}

// inConfig replaces a text of config.json.
func inConfig(from, to string) func(dir string) error {
	return func(dir string) error {
		path := filepath.Join(dir, "config.json")
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Contains(b, []byte(from)) {
			return fmt.Errorf("config.json has no %s", from)
		}
		return os.WriteFile(path, bytes.ReplaceAll(b, []byte(from), []byte(to)), 0o600)
	}
}
