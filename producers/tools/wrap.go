package tools

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
)

// LatencyConfig draws a tool's latency from a log-normal distribution, which has the long tail of real
// services; or, with SlowShare, from two modes. The zero value adds none.
type LatencyConfig struct {
	// Median of the latency; 0 adds none.
	Median time.Duration `koanf:"median"`
	// P99 is the 99th percentile, >= Median.
	P99 time.Duration `koanf:"p99"`
	// SlowShare is the share of the calls that take Slow in place of a latency of that distribution, 0 to 1: a service that answers most
	// calls from memory, say. 0 is none.
	SlowShare float64 `koanf:"slow_share"`
	// Slow is how long such a call takes, >= 0.
	Slow time.Duration `koanf:"slow"`
}

// Validate reports every fault.
func (c LatencyConfig) Validate() error {
	return check.All(
		check.NotNegative("median", c.Median),
		check.That(c.P99 >= c.Median, "p99", "%s: must not be below the median, %s", c.P99, c.Median),
		check.Between("slow_share", c.SlowShare, 0, 1),
		check.NotNegative("slow", c.Slow),
	)
}

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263478740408408

// Draw returns the latency of the index-th call of an episode with this seed: the same for the same
// arguments.
func (c LatencyConfig) Draw(seed uint64, index int) time.Duration {
	rng := rand.New(rand.NewPCG(seed, uint64(index)))
	if c.SlowShare > 0 && rng.Float64() < c.SlowShare {
		return c.Slow
	}
	if c.Median <= 0 {
		return 0
	}
	sigma := math.Log(float64(c.P99)/float64(c.Median)) / z99
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

// How a call ends that ignores its context.
const (
	// lastWord is how long a call may take to end once its time is over, before it is left behind.
	lastWord = time.Second
	// maxAbandoned bounds the calls of a tool that are left behind and still run.
	maxAbandoned = 32
)

// Within returns the tool with a time limit on each call, > 0, of which waits for other calls to end are no part. A longer call fails,
// and the agent is told, unless the tool itself says that it was unavailable. A call that ignores its context is left behind: it goes on by
// itself, and is counted by [producers.Abandoned]. While 32 calls of the tool do, it is unavailable.
func Within(tool producers.Tool, limit time.Duration) producers.Tool {
	timedOut := fmt.Errorf("timed out after %s", limit)
	var left atomic.Int64
	return wrapped{tool, func(ctx context.Context, call producers.Call) (producers.Observation, error) {
		if n := left.Load(); n >= maxAbandoned {
			return producers.Observation{}, fmt.Errorf("%w: %s: %d calls still run though their time is over: it does not end when it is told to",
				producers.ErrUnavailable, tool.Spec().Name, n)
		}
		limited, cancel := producers.LimitCall(ctx, limit, timedOut)
		defer cancel()
		var observation producers.Observation
		done := make(chan error, 1)
		go func() {
			done <- producers.Guard(func() (err error) {
				observation, err = tool.Call(limited, call)
				return err
			})
		}()
		err, ended := awaitEnd(limited, done)
		if !ended {
			left.Add(1)
			over := producers.Abandoned(ctx)
			go func() {
				<-done //nolint:errcheck // how it ends is of no use any more
				left.Add(-1)
				over()
			}()
			return producers.Observation{}, context.Cause(limited)
		}
		if err != nil && errors.Is(context.Cause(limited), timedOut) && !errors.Is(err, producers.ErrUnavailable) {
			return producers.Observation{}, timedOut
		}
		return observation, err
	}}
}

// Cut returns the tool with a bound on its observations. The default bound gives way to a bound that the tool brings.
func Cut(tool producers.Tool, cut producers.Cut) producers.Tool {
	if cut == producers.DefaultCut() {
		return tool
	}
	return bounded{wrapped{tool, tool.Call}, cut}
}

// bounded is a tool with another bound on its observations.
type bounded struct {
	wrapped
	cut producers.Cut
}

func (b bounded) Cut() producers.Cut { return b.cut }

// awaitEnd returns how a call ended; ended is false where it did not, though its time is over.
func awaitEnd(ctx context.Context, done <-chan error) (err error, ended bool) {
	select {
	case err := <-done:
		return err, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case err := <-done:
		return err, true
	case <-timer.C:
		return nil, false
	}
}

// Bare is the tool within all that wraps it; of a tool that is placed on workers, the tool of this process.
func Bare(tool producers.Tool) producers.Tool {
	for {
		switch outer := tool.(type) {
		case wrapped:
			tool = outer.Tool
		case bounded:
			tool = outer.Tool
		case checked:
			tool = outer.Tool
		case interface{ Here() producers.Tool }:
			tool = outer.Here()
		default:
			return tool
		}
	}
}

// wrapped is a tool with another Call.
type wrapped struct {
	producers.Tool
	call func(ctx context.Context, call producers.Call) (producers.Observation, error)
}

func (w wrapped) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	return w.call(ctx, call)
}

// Cut is the bound of the tool within.
func (w wrapped) Cut() producers.Cut {
	if tool, ok := w.Tool.(producers.Bounded); ok {
		return tool.Cut()
	}
	return producers.DefaultCut()
}

// Open and Close pass on to the tool within, if that keeps anything for episodes.
func (w wrapped) Open(ctx context.Context, s producers.Session) error {
	if tool, ok := w.Tool.(producers.SessionTool); ok {
		return tool.Open(ctx, s)
	}
	return nil
}

// OpenTold passes the secret on to the tool within, if that is to be told.
func (w wrapped) OpenTold(ctx context.Context, s producers.Session, secret producers.Secret) error {
	if tool, ok := w.Tool.(producers.SessionTool); ok {
		return producers.OpenSession(ctx, tool, s, secret)
	}
	return nil
}

func (w wrapped) Close(ctx context.Context, episode string) error {
	if tool, ok := w.Tool.(producers.SessionTool); ok {
		return tool.Close(ctx, episode)
	}
	return nil
}

// TakePlace is that of the tool within.
func (w wrapped) TakePlace(ctx context.Context, call producers.Call, patience time.Duration) (own bool, err error) {
	return producers.TakePlaceOf(ctx, w.Tool, call, patience)
}

// Workspace is the workspace of the tool within, if there is any.
func (w wrapped) Workspace(episode string) (producers.Workspace, bool) {
	if tool, ok := w.Tool.(producers.Workspaced); ok {
		return tool.Workspace(episode)
	}
	return nil, false
}

// Place is that of the tool within.
func (w wrapped) Place() string {
	if tool, ok := w.Tool.(producers.Apart); ok {
		return tool.Place()
	}
	return ""
}

// Effects are those of the tool within.
func (w wrapped) Effects() producers.Effects { return producers.EffectsOf(w.Tool) }
