package cli

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/compare"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers/data"
	"github.com/weir-rl/weir/trainer/metrics"
)

// root is the module's folder: the examples' paths are relative to it.
var root = filepath.Join("..", "..")

func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	seen := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "examples"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		seen++
		if filepath.Base(path) == "compare.yaml" {
			file, err := compare.ReadFile(path)
			require.NoError(t, err)
			_, err = file.MakePlan(t.TempDir(), compare.All, func(from config.Sources) (*config.Config, map[string]string, error) {
				return config.Resolve(builtin.Doors(), from)
			})
			require.NoError(t, err)
			return nil
		}
		cfg, _, err := config.Resolve(builtin.Doors(), config.Sources{Files: []string{path}})
		require.NoError(t, err, path)
		require.NoError(t, cfg.Finish(), path)
		return nil
	}))
	require.GreaterOrEqual(t, seen, 3)
}

// examples/demo.yaml says that it holds the defaults.
func TestDemoExampleIsTheDefault(t *testing.T) {
	t.Parallel()
	cfg, _, err := config.Resolve(builtin.Doors(), config.Sources{Files: []string{filepath.Join(root, "examples", "demo.yaml")}})
	require.NoError(t, err)
	require.Equal(t, config.Values(config.Default(builtin.Doors())), config.Values(cfg))
}

// examples/countries-two-hop.yaml is the task that benchmarks and fault tests train on, with the optimizer of the studies of it.
func TestTwoHopExampleIsTwoHop(t *testing.T) {
	t.Parallel()
	doors := builtin.Doors()
	cfg, _, err := config.Resolve(doors, config.Sources{Files: []string{filepath.Join(root, "examples", "countries-two-hop.yaml")}})
	require.NoError(t, err)
	want, _, err := config.Resolve(doors, config.Sources{Tasks: []string{doors.Quick}, Flags: map[string]string{
		"run.name": "two-hop", "trainer.optimizer.learning_rate": "0.0001", "trainer.optimizer.beta2": "0.95",
	}})
	require.NoError(t, err)
	require.Equal(t, config.Values(want), config.Values(cfg))
}

// The example of a corpus of one's own trains for two small steps through every role, and each number that it
// writes down has its place in docs/metrics.md.
func TestOwnCorpusTrains(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary(t), "up", "--config", "examples/own-corpus/run.yaml", "--run.dir", dir, "--trainer.steps", "2",
		"--trainer.batch_groups", "4", "--trainer.group_size", "4", "--trainer.cold_start.steps", "40", "--trainer.selection.drop_zero_variance=false",
		"--eval.questions", "8", "--eval.test_questions", "8")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "exact match, validation, greedy")

	records, err := report.ReadMetrics(filepath.Join(dir, "own-corpus", "metrics.jsonl"))
	require.NoError(t, err)
	var kinds []string
	for _, r := range records {
		kinds = append(kinds, r.Type)
		for key := range r.Metrics {
			require.True(t, documented(key), "%s of %s is not in docs/metrics.md", key, r.Type)
		}
	}
	slices.Sort(kinds)
	require.Subset(t, slices.Compact(kinds), []string{"evaluated", "step_done", "tested"})
	require.Contains(t, weir(t, "audit", "--run.name", "own-corpus", "--run.dir", dir), "steps 2, ")
}

// The examples of self-play train for two small steps, and their trajectories pay each part.
func TestSelfplayTrains(t *testing.T) {
	t.Parallel()
	for file, name := range map[string]string{"run.yaml": "selfplay", "within.yaml": "selfplay-within"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), binary(t), "up", "--config", "examples/selfplay/"+file, "--run.dir", dir, "--trainer.steps", "2",
				"--trainer.batch_groups", "4", "--trainer.group_size", "4", "--trainer.cold_start.steps", "300", "--trainer.selection.drop_zero_variance=false",
				"--eval.questions", "8", "--eval.test_questions", "8")
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "exact match, validation, greedy")
			require.Contains(t, weir(t, "audit", "--run.name", name, "--run.dir", dir), "steps 2, ")
			text := weir(t, "audit", "--run.name", name, "--run.dir", dir, "--step", "2", "--text")
			require.Contains(t, text, "proposer")
			records, err := report.ReadMetrics(filepath.Join(dir, name, "metrics.jsonl"))
			require.NoError(t, err)
			steps := 0
			for _, r := range records {
				if r.Type == "step_done" {
					steps++
					require.Contains(t, r.Metrics, "reward/component/valid")
					require.Contains(t, r.Metrics, "reward/component/solved")
				}
			}
			require.Equal(t, 2, steps)
		})
	}
}

// The example of data files in other systems' schemas trains for two small steps through every role.
func TestOwnDataTrains(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary(t), "up", "--config", "examples/own-data/run.yaml", "--run.dir", dir, "--trainer.steps", "2",
		"--trainer.batch_groups", "4", "--trainer.group_size", "4", "--trainer.cold_start.steps", "20", "--eval.questions", "8", "--eval.test_questions", "8")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "step 2/2")
	require.Regexp(t, `(?m)^ *minus +\d`, string(out), "the source that the Parquet file names")

	// What an evaluation keeps is what the next run's order goes by.
	samples := filepath.Join(dir, "samples.jsonl")
	eval := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), binary(t), append([]string{"eval", "--run.name", "own-data", "--run.dir", dir}, args...)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	said := eval("--split", "train", "--questions", "6", "--temperature", "1", "--repeat", "4", "--samples", samples, "--control")
	for _, want := range []string{`over 24 rollouts, 4 of each question`, `mean@4 +\d`, `pass@2 +\d`, `maj@4 +\d.* to .* over 6 questions +without tools`, `f1 +\d`} {
		require.Regexp(t, want, said)
	}
	rates, err := data.PassRates(t.Context(), samples)
	require.NoError(t, err)
	require.Len(t, rates, 6)
	again := eval("--config", "examples/own-data/run.yaml", "--split", "train", "--questions", "3", "--tasks.sums.pass_rates", samples, "--tasks.sums.order.mode", "pass_rate", "--json")
	require.Contains(t, again, `"failed":0`)
}

func documented(key string) bool {
	for _, g := range metrics.Groups() {
		for _, k := range g.Keys {
			name, _, open := strings.Cut(k.Name, "<")
			if key == name || open && strings.HasPrefix(key, name) {
				return true
			}
		}
	}
	return false
}

// Commands that the pages show are commands, with flags that they have.
func TestCommandsInPagesExist(t *testing.T) {
	t.Parallel()
	root := (&app{doors: builtin.Doors(), console: console{out: io.Discard, err: io.Discard}}).rootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	quoted := regexp.MustCompile(`'[^']*'`) // another program's command, with flags of its own
	shown := regexp.MustCompile("(?m)(?:^(?:[a-z0-9]+)?\\$? *|`)(?:go run ./cmd/)?weir ((?:[^`#\n]|\\\\\n)+)")
	seen := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docker-compose.yml", "deploy/*/*.conf", "examples/*.yaml", "examples/*/*.yaml"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", pattern))
		require.NoError(t, err)
		for _, path := range paths {
			text := regexp.MustCompile(`(?m)^.*\bnot there yet\b.*$`).ReplaceAllString(string(read(t, path)), "")
			for _, m := range shown.FindAllStringSubmatch(text, -1) {
				words := strings.Fields(quoted.ReplaceAllString(strings.ReplaceAll(m[1], "\\\n", " "), "quoted"))
				first, _, _ := strings.Cut(words[0], "|")
				command, _, err := root.Find([]string{first})
				if err != nil || command == root {
					t.Errorf("%s: weir %s: no such command", path, m[1])
					continue
				}
				if len(words) > 1 {
					if below, _, err := command.Find(words[1:2]); err == nil {
						command = below
					}
				}
				for _, word := range words {
					name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
					if strings.HasPrefix(word, "--") && command.Flag(name) == nil && root.PersistentFlags().Lookup(name) == nil {
						t.Errorf("%s: weir %s: no flag --%s", path, m[1], name)
					}
				}
				seen++
			}
		}
	}
	require.Greater(t, seen, 30)
}

// A model folder of one's own, made here with random weights and a tokenizer of bytes, trains as an agent that speaks its chat template
// and calls a tool in its format; what comes out is a folder of the same files.
func TestOwnChatTrains(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "trains")
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine: no model folder was made")
	}
	dir := t.TempDir()
	model := filepath.Join(dir, "models", "tiny")
	in := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	examples, err := filepath.Abs(filepath.Join(root, "examples", "own-chat"))
	require.NoError(t, err)
	config := filepath.Join(examples, "run.yaml")
	in(python, filepath.Join(examples, "make_model.py"), "models")
	out := in(binary(t), "up", "--config", config, "--run.dir", dir, "--trainer.steps", "2",
		"--trainer.batch_groups", "4", "--trainer.group_size", "4", "--trainer.cold_start.steps", "30", "--eval.questions", "4", "--eval.test_questions", "4",
		"--trainer.selection.drop_zero_variance=false", "--broker.listen", "127.0.0.1:0", "--telemetry.listen", "127.0.0.1:0")
	require.Contains(t, out, "step 2/2")
	require.Contains(t, weir(t, "audit", "--run.name", "own-chat", "--run.dir", dir), "steps 2, ")

	checkpoint := filepath.Join(dir, "own-chat", "checkpoints", "step_000002")
	for _, name := range []string{"chat_template.jinja", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		require.Equal(t, read(t, filepath.Join(model, name)), read(t, filepath.Join(checkpoint, name)), name)
	}
	require.NotEqual(t, read(t, filepath.Join(model, "model.safetensors")), read(t, filepath.Join(checkpoint, "model.safetensors")))
	for _, folder := range []string{model, checkpoint} {
		ids, err := piped(t, `"<|im_start|>user\nWho?<|im_end|>"`, "tokenize", folder)
		require.NoError(t, err)
		text, err := piped(t, ids, "tokenize", folder, "--decode")
		require.NoError(t, err)
		require.Equal(t, "\"<|im_start|>user\\nWho?<|im_end|>\"\n", text)
	}
	in(binary(t), "chat", "--run.name", "own-chat", "--run.dir", dir, "--checkpoint", checkpoint, "What is the code of box 4821?")

	// Demonstrations that are longer than the folder's model are refused before anything runs.
	shape := filepath.Join(model, "config.json")
	whole := read(t, shape)
	short := regexp.MustCompile(`"max_position_embeddings": \d+`).ReplaceAllString(string(whole), `"max_position_embeddings": 100`)
	require.NotEqual(t, string(whole), short)
	require.NoError(t, os.WriteFile(shape, []byte(short), 0o600))
	cmd := exec.CommandContext(t.Context(), binary(t), "up", "--config", config, "--run.dir", t.TempDir(), "--trainer.limits.max_tokens", "98")
	cmd.Dir = dir
	refused, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, `task codes: a demonstration has \d+ tokens, and max_position_embeddings in the config.json of models/tiny is 100`, string(refused))
	require.NoError(t, os.WriteFile(shape, whole, 0o600))

	// A template that cannot be used is refused before anything runs.
	require.NoError(t, os.WriteFile(filepath.Join(model, "chat_template.jinja"), []byte("{{ raise_exception('no') }}"), 0o600))
	cmd = exec.CommandContext(t.Context(), binary(t), "up", "--config", config, "--run.dir", t.TempDir())
	cmd.Dir = dir
	refused, err = cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 3, cmd.ProcessState.ExitCode())
	require.Contains(t, string(refused), "the template refuses the conversation: no; put a template that renders into chat_template.jinja")
}
