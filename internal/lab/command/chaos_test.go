package command

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/lab/chaos"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// Invariant: the user's program has no command that breaks a run, and no variable makes its trainer kill itself.
func TestInvariantTheUsersProgramHasNoCommandThatBreaksARun(t *testing.T) {
	plain, laboratory := filepath.Join(t.TempDir(), "weir"), filepath.Join(t.TempDir(), "weir-lab")
	for path, of := range map[string]string{plain: "github.com/weir-rl/weir/cmd/weir", laboratory: "./../cmd/weir-lab"} {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, of).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	for path, has := range map[string]bool{plain: false, laboratory: true} {
		program := read(t, path)
		require.Equal(t, has, bytes.Contains(program, []byte(chaos.KillAfterEnv)), path)
		require.Equal(t, has, bytes.Contains(program, []byte("internal/lab")), path)
		help, err := exec.CommandContext(t.Context(), path, "--help").CombinedOutput()
		require.NoError(t, err, string(help))
		require.Equal(t, has, strings.Contains(string(help), "chaos"), path)
	}
	out, err := exec.CommandContext(t.Context(), plain, "chaos").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), `unknown command "chaos"`)
}

// These tests share two cores with nothing else: they run one after the other.

// harnessed lays out a run of real processes; change may make it another than weir chaos has.
func harnessed(t *testing.T, mode string, change func(*config.Config)) chaos.Config {
	t.Helper()
	home := t.TempDir()
	address := streamtest.FreeAddress(t)
	l := &lab{doors: builtin.Doors(), out: io.Discard, err: io.Discard}
	cfg, err := l.resolveConfig(config.Sources{Tasks: []string{l.doors.Quick}, Change: func(c *config.Config) {
		chaos.Small(c)
		c.Run.Dir, c.Broker.Listen = home, address
		if change != nil {
			change(c)
		}
	}})
	require.NoError(t, err)
	file, err := chaos.WriteFile(cfg, home)
	require.NoError(t, err)
	return chaos.Config{
		Program: []string{program(t), roleCommand}, Dir: filepath.Join(home, "logs"), File: file,
		Run: cfg.Run.Name, Broker: cfg.Broker.Listen, Checkpoints: cfg.Trainer.Checkpoint.Dir, Eta: cfg.Trainer.Eta,
		Reuse: cfg.Trainer.Reuse, Archive: chaos.ArchiveOf(cfg), Journal: cfg.Producer.Journal.Mode != producers.JournalOff,
		Store: cfg.Broker.StoreDir, Lease: cfg.Streams.Lease,
		Mode: mode, Engine: chaos.EngineNative, Seed: 1, Duration: time.Minute, Every: 2 * time.Second, Steps: 3, Patience: 3 * time.Minute,
		Out: t.Output(),
	}
}

// survive runs it and holds it to every promise.
func survive(t *testing.T, c chaos.Config) *chaos.Report {
	t.Helper()
	result, err := chaos.Run(t.Context(), c)
	require.NoError(t, err)
	var text bytes.Buffer
	result.Print(&text)
	t.Log("\n" + text.String())
	require.NoError(t, result.Err())
	require.NotZero(t, result.Audit.Trained)
	require.Less(t, result.Audit.Unwitnessed, result.Audit.Trained/4, "the witness saw too little to tell")
	for step := range result.Steps - 1 { // the last may have been cut off by the end
		require.Contains(t, reportedSteps(t, c), step+1, "a step is missing in metrics.jsonl")
	}
	return result
}

func reportedSteps(t *testing.T, c chaos.Config) map[int64]bool {
	t.Helper()
	records, err := report.ReadMetrics(filepath.Join(filepath.Dir(c.Checkpoints), "metrics.jsonl"))
	require.NoError(t, err)
	steps := map[int64]bool{}
	for _, r := range records {
		if r.Type == string(schemas.EventStepDone) {
			steps[r.Step] = true
		}
	}
	return steps
}

func TestChaosLosesNothingAndTrainsOnNothingTwice(t *testing.T) {
	for _, mode := range []string{chaos.ModeProcesses, chaos.ModeEmbedded} {
		t.Run(mode, func(t *testing.T) {
			c := harnessed(t, mode, nil)
			c.Duration, c.Every, c.Seed, c.Fill, c.Lose = 40*time.Second, 1500*time.Millisecond, 5, true, true
			least := 5
			if !fulltest.Enabled() {
				// How much fits into so short a time is the machine's affair.
				c.Duration, c.Every, least = 12*time.Second, 700*time.Millisecond, 1
			}
			report := survive(t, c)
			require.GreaterOrEqual(t, chaos.Total(report.Kills), least)
			require.NotZero(t, report.HostileStored)
			require.NotEmpty(t, report.RejectedBy)
		})
	}
}

// Archive, trainer and broker are killed, the broker's store comes back shorter: no step trains on a message that is not kept.
func TestChaosTrainsOnNothingThatTheArchiveLacks(t *testing.T) {
	c := harnessed(t, chaos.ModeProcesses, func(cfg *config.Config) {
		cfg.Trainer.Archive.Messages.Bytes, cfg.Trainer.Archive.Messages.By, cfg.Trainer.Archive.Required = 1<<30, "role", true
	})
	c.Duration, c.Every, c.Seed, c.Fill, c.Lose = 12*time.Second, 700*time.Millisecond, 24, true, true
	if fulltest.Enabled() {
		c.Duration, c.Every = 40*time.Second, 1500*time.Millisecond
	}
	report := survive(t, c)
	require.NotZero(t, report.Archive.Messages)
	require.Empty(t, report.Archive.Unkept)
}

// Five processes learn what one learns, although each of them is killed while it works.
func TestFiveProcessesLearnThoughEachIsKilled(t *testing.T) {
	c := harnessed(t, chaos.ModeProcesses, func(cfg *config.Config) {
		doors := builtin.Doors()
		d, _, err := config.Resolve(doors, config.Sources{Tasks: []string{doors.Quick}})
		require.NoError(t, err)
		cfg.Trainer.BatchGroups, cfg.Trainer.GroupSize = d.Trainer.BatchGroups, d.Trainer.GroupSize
		cfg.Trainer.Minibatches, cfg.Trainer.Optimizer = d.Trainer.Minibatches, d.Trainer.Optimizer
		cfg.Trainer.Eta, cfg.Streams.MaxTrajectories = d.Trainer.Eta, d.Streams.MaxTrajectories
		cfg.Streams.MaxTickets = d.Streams.MaxTickets
		cfg.Trainer.ColdStart.Steps = 500
		cfg.Trainer.Checkpoint.Every = 1 << 20 // version 0 is kept
		cfg.Producer.Concurrency, cfg.Inference.Slots = 128, 256
	})
	c.Kills = []string{"broker", "trainer", "producer-1", "producer-2", "inference"}
	c.Steps = 7
	report := survive(t, c)
	require.Equal(t, map[string]int{"broker": 1, "trainer": 1, "producer-1": 1, "producer-2": 1, "inference": 1}, report.Kills)

	score := func(step ...string) float64 {
		var r producers.EvalReport
		out := weirLab(t, append([]string{roleCommand, "eval", "--config", c.File, "--questions", "160", "--json"}, step...)...)
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		return r.ExactMatch
	}
	before, after := score("--step", "0"), score()
	t.Logf("exact match on validation questions: %.3f after the cold start, %.3f after %d steps", before, after, report.Steps)
	require.Greater(t, after, before+0.15)
	require.Greater(t, after, 0.75)
	require.Contains(t, weirLab(t, roleCommand, "audit", "--config", c.File), "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0")
}

// With the deterministic setting the weights of a crashed run equal, bit for bit, those of the same run left alone.
func TestCrashedRunEqualsTheSameRunLeftAlone(t *testing.T) {
	const steps = 16
	weights := func(mode string, kills ...string) map[string]string {
		c := harnessed(t, mode, func(cfg *config.Config) {
			cfg.Trainer.Deterministic, cfg.Trainer.Eta = true, 0
			cfg.Trainer.Steps, cfg.Trainer.ColdStart.Steps = steps, 60
			cfg.Trainer.Optimizer.LearningRate = 1e-3
			// With a critic of its own there is more to lose.
			cfg.Trainer.Advantage.Name, cfg.Trainer.Critic.Network, cfg.Trainer.Critic.WarmupSteps = "gae", learner.CriticOwn, 4
			cfg.Trainer.Advantage.Own = advantage.Keys("gae")
			cfg.Eval.TestQuestions = 8
		})
		c.Kills, c.Ends, c.Steps = kills, true, 1
		report := survive(t, c)
		require.EqualValues(t, steps, report.Steps)
		for _, k := range kills {
			stage, _, _ := strings.Cut(strings.TrimPrefix(k, "trainer@"), ":")
			require.Equal(t, 1, report.Kills["trainer after "+stage])
		}
		sums := map[string]string{}
		for _, file := range []string{
			"model.safetensors", "optimizer.safetensors", "critic/model.safetensors", "critic/optimizer.safetensors",
		} {
			sum := sha256.Sum256(read(t, checkpoint.StepDir(c.Checkpoints, steps), file))
			sums[file] = hex.EncodeToString(sum[:])
		}
		return sums
	}
	alone := weights(chaos.ModeEmbedded)
	require.Equal(t, alone, weights(chaos.ModeProcesses), "the same run by five processes")
	require.Equal(t, alone, weights(chaos.ModeProcesses,
		"trainer@batch:1", "trainer@update:1", "trainer@seal:1", "trainer@rename:1", "trainer@ack:2", "trainer@publish:2"),
		"the same run with its trainer killed")
}
