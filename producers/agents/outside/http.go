package outside

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/gateway"
	"github.com/weir-rl/weir/producers/remote"
)

// HTTPConfig says which service is the agent.
type HTTPConfig struct {
	gateway.Config `koanf:",squash"`
	// Service is called once for each episode, and answers when the agent is done.
	Service remote.Reference `koanf:"service"`
}

// DefaultHTTPConfig calls the service once, for ten minutes at most.
func DefaultHTTPConfig() HTTPConfig {
	c := HTTPConfig{Config: gateway.DefaultConfig(), Service: remote.DefaultReference()}
	c.Service.AttemptTimeout, c.Service.Retries, c.Service.Concurrency = 10*time.Minute, 0, 1024
	return c
}

// Validate reports every fault.
func (c HTTPConfig) Validate() error {
	return check.All(c.Config.Validate(), check.Section("service", c.Service.Validate()))
}

// HTTPType is the agent that is a service: each episode is a call of it.
func HTTPType() agents.Type { return agents.NewType("http", DefaultHTTPConfig, openHTTPAgent) }

// openHTTPAgent makes the agent.
func openHTTPAgent(ctx context.Context, cfg HTTPConfig, o agents.Opening) (producers.Agent, error) {
	a, err := openAgent(ctx, o, cfg.Config, "")
	if err != nil {
		return nil, err
	}
	client, err := remote.New(cfg.Service.Connection())
	if err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	client.WarnIfPlain(o.Log)
	a.waitsFor = "one of its service's calls (concurrency)"
	a.takePlace = func(ctx context.Context) (agentPlace, error) {
		slot, err := client.TakeSlot(ctx)
		if err != nil {
			return nil, err
		}
		return slot, nil
	}
	a.drive = func(ctx context.Context, offer gateway.Offer, slot agentPlace) (gateway.Outcome, error) {
		var answer struct {
			Answer  string             `json:"answer"`
			Reward  *float64           `json:"reward"`
			Rewards map[string]float64 `json:"rewards"`
		}
		// The key is the attempt's own: an episode that begins anew has another.
		err := slot.(*remote.Slot).Post(ctx, offer.APIKey, offer, func(data []byte) error {
			if err := remote.Strict(&answer)(data); err != nil {
				return err
			}
			return gateway.Outcome(answer).Check(cfg.MaxReward)
		})
		if failed, ok := errors.AsType[*remote.FailedCallError](err); ok && ctx.Err() == nil {
			// The policy's text may be the cause: the episode ends without an answer, as where a program fails.
			a.log.Debug("the agent's service failed at an episode, which has no answer", "episode", offer.Episode, "err", failed)
			return gateway.Outcome{}, nil
		}
		return gateway.Outcome(answer), err
	}
	return a, nil
}
