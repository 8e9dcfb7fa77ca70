package outside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/gateway"
	"github.com/weir-rl/weir/producers/sandbox"
)

// CommandConfig says which program is the agent.
type CommandConfig struct {
	gateway.Config `koanf:",squash"`
	// Run is the program and its arguments: it is started for each episode.
	Run []string `koanf:"run"`
	// Program says how the program runs.
	sandbox.Program `koanf:",squash"`
	// Env are further variables of the program's environment, as NAME=value. Defaults to none.
	Env []string `koanf:"env"`
	// MaxAnswer bounds the program's standard output, in bytes, > 0; more is cut. Defaults to 65536.
	MaxAnswer int `koanf:"max_answer"`
}

// DefaultCommandConfig is as the fields say.
func DefaultCommandConfig() CommandConfig {
	return CommandConfig{Config: gateway.DefaultConfig(), Program: sandbox.DefaultProgram(), MaxAnswer: 64 << 10}
}

// Validate reports every fault.
func (c CommandConfig) Validate() error {
	faults := []error{
		c.Config.Validate(),
		c.Program.Validate(),
		check.That(len(c.Run) > 0 && c.Run[0] != "", "run", "empty: want a program and its arguments, such as [python3, agent.py]"),
		check.Positive("max_answer", c.MaxAnswer),
	}
	for _, pair := range c.Env {
		name, _, ok := strings.Cut(pair, "=")
		faults = append(faults, check.That(ok && name != "", "env", "%.40q: want NAME=value", pair))
	}
	return check.All(faults...)
}

// Sandboxed reports whether the program is started in a sandbox.
func (c CommandConfig) Sandboxed() bool { return c.Sandbox }

// CommandType is the agent that is a program: each episode starts it anew.
func CommandType() agents.Type {
	return agents.NewType("command", DefaultCommandConfig, openCommandAgent)
}

// openCommandAgent makes the agent.
func openCommandAgent(ctx context.Context, cfg CommandConfig, o agents.Opening) (producers.Agent, error) {
	a, err := openAgent(ctx, o, cfg.Config, "")
	if err != nil {
		return nil, err
	}
	if cfg.Sandbox {
		if o.Spaces == nil {
			return nil, errors.New("sandbox: this program has no sandboxes: write sandbox: false to start the agent without")
		}
		o.Spaces.ClaimPrograms(true, func() error {
			if _, err := cfg.Spec(cfg.Run, nil); err != nil {
				return fmt.Errorf("agents.%s.run: %w", o.Name, err)
			}
			return nil
		})
		a.apart = func(ctx context.Context) (bool, error) {
			pool, err := o.Spaces.Ready(ctx)
			if err != nil {
				return false, err
			}
			return pool.Tier() == sandbox.TierFull, nil
		}
		a.waitsFor, a.pooled = "a place for its sandbox (sandbox.most)", true
		a.takePlace = func(ctx context.Context) (agentPlace, error) {
			taken, err := o.Spaces.TakePlace(ctx)
			if taken == nil {
				return nil, err
			}
			return taken, err
		}
	}
	var failures atomic.Int64
	a.drive = func(ctx context.Context, offer gateway.Offer, taken agentPlace) (gateway.Outcome, error) {
		stdin, err := json.Marshal(offer)
		if err != nil {
			return gateway.Outcome{}, fmt.Errorf("encode the episode for the agent: %w", err)
		}
		p := program{argv: cfg.Run, how: cfg.Program, env: append(environmentOf(offer), cfg.Env...), stdin: stdin, most: cfg.MaxAnswer}
		run := p.runPlain
		if cfg.Sandbox {
			run = func(ctx context.Context) (string, error) {
				return p.runConfined(ctx, o.Spaces, taken.(*sandbox.Place), a.server)
			}
		}
		out, err := run(ctx)
		if failed, ok := errors.AsType[*exitError](err); ok {
			// The policy's text may be the cause: the episode ends without an answer.
			level := slog.LevelDebug
			if n := failures.Add(1); n&(n-1) == 0 { // a program that never works is to be seen, after the trial episode too
				level = slog.LevelWarn
			}
			a.log.Log(ctx, level, "the agent's program failed, and its episode has no answer", "episode", offer.Episode, "status", failed.status, "stderr", failed.stderr)
			return gateway.Outcome{}, nil
		}
		if err != nil {
			return gateway.Outcome{}, err
		}
		return gateway.Outcome{Answer: strings.TrimSpace(out)}, nil
	}
	return a, nil
}

// mostVariable bounds a variable of a program's environment, in bytes as JSON: Linux starts no program with a variable of 128 KiB, and the
// keeper of sandboxes takes messages of twice that.
const mostVariable = 120 << 10

// environmentOf returns the variables that tell a program of its episode, by the names that OpenAI's and Anthropic's own clients read. A
// variable that is too long for an environment is left out: the program reads the episode's JSON on its standard input.
func environmentOf(o gateway.Offer) []string {
	var env []string
	for _, v := range []struct{ name, value string }{
		{"OPENAI_BASE_URL", o.BaseURL},
		{"OPENAI_API_BASE", o.BaseURL},
		{"OPENAI_API_KEY", o.APIKey},
		{"ANTHROPIC_BASE_URL", o.AnthropicURL},
		{"ANTHROPIC_API_KEY", o.APIKey},
		{"WEIR_EPISODE", o.Episode},
		{"WEIR_TASK", o.Task},
		{"WEIR_SEED", strconv.FormatUint(o.Seed, 10)},
		{"WEIR_PROMPT_ID", o.PromptID},
		{"WEIR_SOURCE", o.Source},
		{"WEIR_PROMPT", o.Prompt},
	} {
		value := strings.ReplaceAll(v.value, "\x00", "")
		if text, err := openai.PlainJSON(value); err == nil && len(text) <= mostVariable {
			env = append(env, v.name+"="+value)
		}
	}
	return env
}

// exitError says that a program ran and failed.
type exitError struct {
	status int
	stderr string // its end
}

func (e *exitError) Error() string {
	return fmt.Sprintf("the agent's program ended with status %d: %s", e.status, e.stderr)
}
