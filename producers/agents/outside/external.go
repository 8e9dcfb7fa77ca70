package outside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/gateway"
)

// ExternalConfig says how agents that come for episodes are known.
type ExternalConfig struct {
	gateway.Config `koanf:",squash"`
	// KeyEnv is the environment variable with the key that an agent sends to be given an episode. Defaults to WEIR_AGENT_KEY.
	KeyEnv string `koanf:"key_env"`
	// Return is how long an episode whose producer died waits for the agent that had it, from 0, before the next agent that comes is given
	// the episode: for agents that end with their requests 0 is best. It is heeded with producer.journal.mode auto and on. Defaults to 30s.
	Return time.Duration `koanf:"return"`
}

// DefaultExternalConfig listens at a fixed port of this machine.
func DefaultExternalConfig() ExternalConfig {
	c := ExternalConfig{Config: gateway.DefaultConfig(), KeyEnv: "WEIR_AGENT_KEY", Return: 30 * time.Second}
	c.Listen = "127.0.0.1:8640"
	return c
}

// Validate reports every fault.
func (c ExternalConfig) Validate() error {
	return check.All(
		c.Config.Validate(),
		check.That(c.KeyEnv != "", "key_env", "empty: name the environment variable that holds the agents' key"),
		check.NotNegative("return", c.Return),
	)
}

// Awaited is true: such an agent comes for episodes by itself.
func (ExternalConfig) Awaited() bool { return true }

// ExternalType is the agent that comes for episodes: POST /episodes with the key gives the next.
func ExternalType() agents.Type {
	return agents.NewType("external", DefaultExternalConfig, openExternalAgent)
}

// openExternalAgent makes the agent.
func openExternalAgent(ctx context.Context, cfg ExternalConfig, o agents.Opening) (producers.Agent, error) {
	key := os.Getenv(cfg.KeyEnv)
	if key == "" {
		return nil, fmt.Errorf("key_env: the variable %s is empty: set it to a secret that the agents send too", cfg.KeyEnv)
	}
	a, err := openAgent(ctx, o, cfg.Config, key)
	if err != nil {
		return nil, err
	}
	a.awaited, a.lasts = true, true
	a.drive = func(ctx context.Context, offer gateway.Offer, _ agentPlace) (gateway.Outcome, error) {
		switch err := a.server.Offer(ctx, offer, cfg.Return); {
		case errors.Is(err, gateway.ErrMakesRoom):
			return gateway.Outcome{}, fmt.Errorf("%w: %w", producers.ErrNotBegun, err)
		case err != nil:
			return gateway.Outcome{}, err
		}
		<-ctx.Done() // its outcome is posted
		if errors.Is(context.Cause(ctx), errDone) {
			return gateway.Outcome{}, nil
		}
		return gateway.Outcome{}, context.Cause(ctx)
	}
	return a, nil
}
