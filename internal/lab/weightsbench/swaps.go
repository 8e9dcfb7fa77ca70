package weightsbench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/lab/harness"
)

// SwapConfig is a way for versions to go: from a publisher to consumers.
type SwapConfig struct {
	// Name says which, in words.
	Name string
	// Model describes the weights; Versions of it, at least two, each little different from the next, are published
	// forth and back.
	Model    gpu.Config
	Versions []Version
	// BaseEvery is the publisher's: 1 publishes whole versions, more deltas between whole ones, which are not measured.
	BaseEvery int
	// Swaps is how many versions are measured.
	Swaps int
	// Consumers follow; each has a connection of its own.
	Consumers int
	// Callers generate all the while. They need a single consumer; 0 leaves the consumers idle.
	Callers int
	// NewDecoder makes the consumers' decoders.
	NewDecoder consumers.NewDecoder
	// Dir is an empty folder for the broker's streams.
	Dir string
	Log *slog.Logger
}

// Validate reports every fault.
func (c SwapConfig) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Versions) < 2 {
		bad("%d versions: want at least 2", len(c.Versions))
	}
	if c.Swaps < 1 {
		bad("%d swaps: want at least 1", c.Swaps)
	}
	if c.Consumers < 1 {
		bad("%d consumers: want at least 1", c.Consumers)
	}
	if c.Callers < 0 || c.Callers > 0 && c.Consumers > 1 {
		bad("%d callers of %d consumers: callers need a single consumer", c.Callers, c.Consumers)
	}
	return errors.Join(errs...)
}

// Swaps is how long versions took from their publisher to their use. The parts after Publish follow each other and
// add up to Total, version by version.
type Swaps struct {
	Name string `json:"name"`
	// Deltas is whether the measured versions were deltas.
	Deltas    bool `json:"deltas"`
	Consumers int  `json:"consumers"`
	Callers   int  `json:"callers"`
	// Whole is the size of a whole version, Stored the mean size of a measured version in the broker, in bytes.
	Whole  int64 `json:"whole_bytes"`
	Stored int64 `json:"stored_bytes"`
	// TokensPerSecond were sampled meanwhile, by all callers.
	TokensPerSecond float64 `json:"tokens_per_second"`

	// Publish is the whole call of the publisher: encode, store, set the manifest, remove old versions.
	Publish harness.Percentiles `json:"publish"`
	// Notice is from the broker's taking the manifest to the consumer's seeing it.
	Notice harness.Percentiles `json:"notice"`
	// Load is fetching, undoing the delta, and verifying every byte; Decode is from there to float32.
	Load   harness.Percentiles `json:"load"`
	Decode harness.Percentiles `json:"decode"`
	// Prepare lays the weights out for the decoder. Wait is for the step under way, and Pause is all that generation
	// stood still.
	Prepare harness.Percentiles `json:"prepare"`
	Wait    harness.Percentiles `json:"wait"`
	Pause   harness.Percentiles `json:"pause"`
	// FirstToken is from there to the first token of the version in the hands of a caller that waited for it. Without
	// callers it is to the consumer's word that the version is in use.
	FirstToken harness.Percentiles `json:"first_token"`
	// Total is from the broker's taking the manifest to that.
	Total harness.Percentiles `json:"total"`
}

// Rate is how many bytes of whole weights each consumer has in its hands, verified, a second of Load.
func (s *Swaps) Rate() float64 { return float64(s.Whole) / (s.Load.P50 / 1000) }

// samples are a way's measurements so far.
type samples struct {
	publish []time.Duration
	parts   []parts
	stored  int64
	tokens  int64
	calling time.Duration
}

// parts are the times of a version at a consumer.
type parts struct {
	notice, load, decode, prepare, wait, pause, first, total time.Duration
}

// sumUp sums the samples up; there is a sample at least.
func (m *samples) sumUp(c SwapConfig) *Swaps {
	of := func(part func(parts) time.Duration) harness.Percentiles {
		xs := make([]time.Duration, len(m.parts))
		for i, p := range m.parts {
			xs[i] = part(p)
		}
		return harness.PercentilesOf(xs)
	}
	s := &Swaps{
		Name: c.Name, Deltas: c.BaseEvery > 1, Consumers: c.Consumers, Callers: c.Callers,
		Whole: c.Versions[0].totalBytes(), Stored: m.stored / int64(len(m.publish)), Publish: harness.PercentilesOf(m.publish),
		Notice:     of(func(p parts) time.Duration { return p.notice }),
		Load:       of(func(p parts) time.Duration { return p.load }),
		Decode:     of(func(p parts) time.Duration { return p.decode }),
		Prepare:    of(func(p parts) time.Duration { return p.prepare }),
		Wait:       of(func(p parts) time.Duration { return p.wait }),
		Pause:      of(func(p parts) time.Duration { return p.pause }),
		FirstToken: of(func(p parts) time.Duration { return p.first }),
		Total:      of(func(p parts) time.Duration { return p.total }),
	}
	if m.calling > 0 {
		s.TokensPerSecond = float64(m.tokens) / m.calling.Seconds()
	}
	return s
}

// MeasureSwaps publishes versions over a broker, in turn, to consumers that are the real role, and measures
// how long each part takes. The ways take turns, rounds each. Each has a broker of its own in this process, reached over
// TCP, which syncs every message as by default.
func MeasureSwaps(ctx context.Context, rounds int, ways ...SwapConfig) (out []*Swaps, err error) {
	var lanes []*lane
	defer func() {
		for _, l := range lanes {
			err = errors.Join(err, l.closeLane())
		}
	}()
	for _, c := range ways {
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("measure %s: %w", c.Name, err)
		}
		l, err := openLane(ctx, c)
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, l)
		// Not counted: the first version makes the decoder, the first of each makes room.
		if err := l.measureRound(ctx, len(c.Versions), new(samples)); err != nil {
			return nil, err
		}
	}
	measured := make([]samples, len(ways))
	for round := range rounds {
		for i, l := range lanes {
			// In all as many as are asked for.
			n := ways[i].Swaps*(round+1)/rounds - ways[i].Swaps*round/rounds
			if err := l.measureRound(ctx, n, &measured[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", ways[i].Name, err)
			}
		}
	}
	for i := range ways {
		out = append(out, measured[i].sumUp(ways[i]))
	}
	return out, nil
}
