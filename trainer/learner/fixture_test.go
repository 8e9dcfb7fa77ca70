package learner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/perturb"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
)

const vocab = 6

func testConfig() Config {
	c := DefaultConfig()
	c.Steps, c.BatchGroups = 6, 3
	c.Minibatches, c.MicroTokens = 2, 40
	c.Optimizer.LearningRate, c.Optimizer.ClipNorm = 0.5, 0
	return c
}

// dialogue is a rollout: prompt, then for each turn two sampled tokens and what the tool said.
func dialogue(reward float64, stop schemas.StopReason, prompt int32, turns ...[3]int32) *schemas.Trajectory {
	s := schemas.Segment{Temperature: 1}
	add := func(token int32, sampled uint8) {
		version := schemas.NoVersion
		if sampled == 1 {
			version = 0
		}
		s.Tokens, s.ActionMask = append(s.Tokens, token), append(s.ActionMask, sampled)
		s.Logprobs, s.Versions = append(s.Logprobs, -float32(sampled)), append(s.Versions, version)
	}
	t := &schemas.Trajectory{Reward: reward, Stop: stop}
	add(0, 0)
	add(prompt, 0)
	for _, turn := range turns {
		start := len(s.Tokens)
		add(turn[0], 1)
		add(turn[1], 1)
		t.Turns = append(t.Turns, schemas.Turn{Start: start, End: len(s.Tokens), Calls: []schemas.ToolCall{{Tool: "search"}}})
		t.Values = append(t.Values, schemas.StateValue{Mean: reward / float64(1+len(t.Turns)), Samples: 1})
		add(turn[2], 0)
	}
	t.Segments = []schemas.Segment{s}
	return t
}

// estimate gives the rows and the advantages that a step of this configuration trains on.
func estimate(t *testing.T, engine gpu.Engine, change func(*Config), group ...*schemas.Trajectory) (*batch.Rows, *advantage.Result) {
	t.Helper()
	s := stepBeforeUpdate(t, engine, change, group...)
	return s.rows, &s.result
}

// stepBeforeUpdate is a step of this configuration as it stands before its first update.
func stepBeforeUpdate(t *testing.T, engine gpu.Engine, change func(*Config), group ...*schemas.Trajectory) *step {
	t.Helper()
	cfg := testConfig()
	change(&cfg)
	require.NoError(t, cfg.Validate())
	l, err := New(cfg, Deps{Engine: engine})
	require.NoError(t, err)
	s := l.beginStep(batchOf(group...))
	require.NoError(t, s.evaluateBatch(t.Context()))
	require.NoError(t, s.assignCredit(t.Context()))
	return s
}

// batchOf is a batch of one group.
func batchOf(group ...*schemas.Trajectory) *batch.Batch {
	var taken batch.Taken
	for _, x := range group {
		taken.Members = append(taken.Members, batch.Member{Trajectory: x, Reward: x.Reward, Return: x.Reward})
	}
	return &batch.Batch{Groups: []batch.Taken{taken}}
}

// choose takes the named estimator with its keys changed.
func choose[K any](c *Config, name string, change func(k *K)) {
	keys := advantage.Keys(name).(*K)
	change(keys)
	c.Advantage.Name, c.Advantage.Own = name, keys
}

// correct takes the named loss with the fields of a correction that are not zero.
func correct(c *Config, name string, correction loss.Correction) {
	c.Loss.Name, c.Loss.Options = name, loss.Keys(name)
	perturb.Overlay(c.Loss.Options, struct{ Correction loss.Correction }{correction}, false)
}
