package load

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// chunk is how many tokens an engine sends at once.
const chunk = 16

// engine answers calls by the clock, in slots; a call beyond them waits.
type engine struct {
	config Config
	slots  chan struct{}
	busy   *tally // time in slots
}

func (e *engine) serveCalls(ctx context.Context, run *streams.Run, n int) error {
	e.slots = make(chan struct{}, e.config.EngineSlots)
	return generate.Serve(ctx, run, fmt.Sprintf("e%d", n), e.answerCall, generate.WithMaxCalls(4*e.config.EngineSlots))
}

func (e *engine) answerCall(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	begin := time.Now()
	defer func() {
		e.busy.addTime(time.Since(begin))
		<-e.slots
	}()
	for left := req.MaxTokens; left > 0; {
		n := min(left, chunk)
		left -= n
		if err := harness.Wait(ctx, time.Duration(n)*e.config.Token); err != nil {
			return err
		}
		c := &schemas.GenerateChunk{Tokens: make(schemas.Int32s, n), Logprobs: make(schemas.Float32s, n), Versions: make(schemas.Runs, n)}
		if left == 0 {
			c.Done, c.Stop = true, schemas.GenerateLength
		}
		if err := emit(c); err != nil {
			return err
		}
	}
	return nil
}
