package streambench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// GenerateReport is the wire's cost of a generate call: the engine answers at once, with a single token.
type GenerateReport struct {
	// Alone is the microseconds of a call alone, the median of each round. Together is the calls a second of
	// as many callers as there are producers.
	Alone    harness.Spread `json:"alone_microseconds"`
	Together harness.Spread `json:"together_per_second"`
}

// promptTokens is the context of a call.
const promptTokens = 512

func measureGenerate(ctx context.Context, config Config, run *streams.Run) (report GenerateReport, err error) {
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- generate.Serve(serving, run, "bench", answerAtOnce) }()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
	}()
	g := generate.NewClient(run, generate.ClientOptions{})
	defer g.Close()
	call := func(ctx context.Context, episode string) error {
		_, err := g.Generate(ctx, &schemas.GenerateRequest{
			Episode: episode, Tokens: make(schemas.Int32s, promptTokens), MaxTokens: 1, Temperature: 1, Last: true,
		})
		return err
	}
	// The engine may not have subscribed yet: the first call waits for that.
	if err := call(ctx, "first"); err != nil {
		return report, err
	}
	var alone, together []float64
	for round := range config.Rounds {
		micros := make([]float64, config.Calls)
		for i := range micros {
			begin := time.Now()
			if err := call(ctx, fmt.Sprintf("a%d-%d", round, i)); err != nil {
				return report, err
			}
			micros[i] = time.Since(begin).Seconds() * 1e6
		}
		alone = append(alone, harness.SpreadOf(micros).Median)
		begin := time.Now()
		work, working := errgroup.WithContext(ctx)
		for p := range config.Producers {
			work.Go(func() error {
				for i := p; i < config.Calls; i += config.Producers {
					if err := call(working, fmt.Sprintf("t%d-%d", round, i)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := work.Wait(); err != nil {
			return report, err
		}
		together = append(together, float64(config.Calls)/time.Since(begin).Seconds())
	}
	return GenerateReport{Alone: harness.SpreadOf(alone), Together: harness.SpreadOf(together)}, nil
}

// answerAtOnce is an engine that knows its token before it is asked.
func answerAtOnce(_ context.Context, _ *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return emit(&schemas.GenerateChunk{
		Tokens: schemas.Int32s{7}, Logprobs: schemas.Float32s{-1}, Versions: schemas.Runs{0}, Done: true, Stop: schemas.GenerateLength,
	})
}
