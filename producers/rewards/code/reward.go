package code

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/data"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/schemas"
)

// The components beside exact_match, which is 1 where all tests are passed.
const (
	// ComponentPassed is the share of tests that are passed.
	ComponentPassed = "tests_passed"
	// ComponentFormat is 1 where there is a program.
	ComponentFormat = "format"
)

// maxProgram bounds a program, in bytes.
const maxProgram = 1 << 20

// Reward tests programs.
type Reward struct {
	cfg    Config
	spaces *workspace.Manager
}

// New makes the reward.
func New(cfg Config, spaces *workspace.Manager) (*Reward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if spaces == nil {
		return nil, errors.New("code: this program opens no sandboxes")
	}
	spaces.Claim()
	return &Reward{cfg, spaces}, nil
}

// Score runs the prompt's hidden tests in a fresh sandbox: the episode's own sandbox ends before. Its errors are the machinery's, or of a
// prompt whose tests are missing or broken.
func (r *Reward) Score(ctx context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	tests, err := parseTests(ticket.Prompt.Hidden)
	if err != nil {
		return producers.Score{}, fmt.Errorf("prompt %s: %w", ticket.Prompt.ID, err)
	}
	if n := r.cfg.Tests; n > 0 {
		tests.tests = tests.tests[:min(n, len(tests.tests))]
	}
	program, ok := r.findProgram(ctx, t)
	if context.Cause(ctx) != nil {
		return producers.Score{}, context.Cause(ctx)
	}
	out := producers.Score{Total: r.cfg.Wrong, Components: map[string]float64{producers.ComponentExactMatch: 0, ComponentPassed: 0, ComponentFormat: 0}}
	if !ok {
		return out, nil
	}
	v, err := r.testProgram(ctx, ticket.ID, program, tests)
	if err != nil {
		return producers.Score{}, fmt.Errorf("prompt %s: test the program: %w", ticket.Prompt.ID, err)
	}
	share := float64(v.passed) / float64(v.of)
	out.Components[ComponentPassed], out.Components[ComponentFormat] = share, 1
	switch {
	case v.passed == v.of:
		out.Total, out.Components[producers.ComponentExactMatch] = r.cfg.Correct, 1
	case r.cfg.Partial:
		out.Total += share * (r.cfg.Correct - r.cfg.Wrong)
	}
	out.Total += r.cfg.Format
	return out, nil
}

// ReadsOfEpisode says whether it reads a file of the episode's sandbox.
func (r *Reward) ReadsOfEpisode() string {
	if r.cfg.File == "" {
		return ""
	}
	return fmt.Sprintf("the file %s of the episode's sandbox", r.cfg.File)
}

// findProgram returns the agent's program: the file that the configuration names, else the program in the answer of an episode that ended
// with an answer.
func (r *Reward) findProgram(ctx context.Context, t *producers.Transcript) (string, bool) {
	if r.cfg.File != "" {
		if t.Workspace == nil {
			return "", false // it started none
		}
		text, err := t.Workspace.ReadFile(ctx, r.cfg.File, maxProgram)
		return string(text), err == nil && len(text) > 0 // a fault of the file is the agent's doing
	}
	if t.Stop != schemas.StopAnswer {
		return "", false
	}
	program, ok := r.cfg.extractProgram(t.Answer)
	return program, ok && len(program) <= maxProgram
}

// suite are a prompt's tests: see [data.Tests].
type suite struct {
	tests   []data.Test
	entry   string
	code    []string
	wrapped wrapping
}

// parseTests reads the tests of a prompt.
func parseTests(hidden json.RawMessage) (*suite, error) {
	var tests data.Tests
	if len(hidden) == 0 {
		return nil, errors.New("it has no hidden tests: the reward code needs a data set whose rows have them, see columns.tests")
	}
	if err := json.Unmarshal(hidden, &tests); err != nil {
		return nil, fmt.Errorf("its hidden tests: %w", err)
	}
	if len(tests.Tests)+len(tests.Code) == 0 {
		return nil, errors.New("it has no hidden tests")
	}
	return &suite{tests.Tests, tests.Entry, tests.Code, wrappingOf(tests.Tests)}, nil
}

// Type is the reward code.
func Type() rewards.Type { return rewards.NewType(Name, DefaultConfig, openReward) }

// openReward makes the reward.
func openReward(_ context.Context, cfg Config, o rewards.Opening) (producers.Reward, error) {
	return New(cfg, o.Spaces)
}
