package tools

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
)

// LatencyConfig draws a tool's latency from a log-normal distribution, which has the long tail of real
// services. The zero value adds none.
type LatencyConfig struct {
	// Median of the latency; 0 adds none.
	Median time.Duration `koanf:"median"`
	// P99 is the 99th percentile, >= Median.
	P99 time.Duration `koanf:"p99"`
}

// Validate reports every fault.
func (c LatencyConfig) Validate() error {
	return check.All(
		check.NotNegative("median", c.Median),
		check.That(c.P99 >= c.Median, "p99", "%s: must not be below the median, %s", c.P99, c.Median),
	)
}

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263478740408408

// Draw returns the latency of the index-th call of an episode with this seed: the same for the same
// arguments.
func (c LatencyConfig) Draw(seed uint64, index int) time.Duration {
	if c.Median <= 0 {
		return 0
	}
	sigma := math.Log(float64(c.P99)/float64(c.Median)) / z99
	rng := rand.New(rand.NewPCG(seed, uint64(index)))
	return time.Duration(float64(c.Median) * math.Exp(sigma*rng.NormFloat64()))
}

// Slow returns the tool with a latency drawn from cfg before each call.
func Slow(tool producers.Tool, cfg LatencyConfig) (producers.Tool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("latency of tool %s: %w", tool.Spec().Name, err)
	}
	return wrapped{tool, func(ctx context.Context, call producers.Call) (producers.Observation, error) {
		if latency := cfg.Draw(call.Seed, call.Index); latency > 0 {
			timer := time.NewTimer(latency)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return producers.Observation{}, context.Cause(ctx)
			}
		}
		return tool.Call(ctx, call)
	}}, nil
}

// Within returns the tool with a time limit on each call, > 0. What takes longer fails, and the agent is told, unless the
// tool itself says that it was unavailable.
func Within(tool producers.Tool, limit time.Duration) producers.Tool {
	timedOut := fmt.Errorf("timed out after %s", limit)
	return wrapped{tool, func(ctx context.Context, call producers.Call) (producers.Observation, error) {
		limited, cancel := context.WithTimeoutCause(ctx, limit, timedOut)
		defer cancel()
		observation, err := tool.Call(limited, call)
		if err != nil && errors.Is(context.Cause(limited), timedOut) && !errors.Is(err, producers.ErrUnavailable) {
			return producers.Observation{}, timedOut
		}
		return observation, err
	}}
}

// wrapped is a tool with another Call.
type wrapped struct {
	producers.Tool
	call func(ctx context.Context, call producers.Call) (producers.Observation, error)
}

func (w wrapped) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	return w.call(ctx, call)
}

// EndEpisode passes on to the tool within, if that keeps anything for episodes.
func (w wrapped) EndEpisode(episode string) {
	if tool, ok := w.Tool.(producers.EpisodeTool); ok {
		tool.EndEpisode(episode)
	}
}
