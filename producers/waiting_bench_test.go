package producers_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// waiting is a tool whose calls take some seconds, and a policy that asks for another until an episode has had its calls. Between them they
// time how long after its tool's end an episode asks the policy again.
type waiting struct {
	producers.Tool
	latency tools.LatencyConfig
	call    []int32 // the turn that calls the tool
	end     []int32 // the turn that answers
	calls   int

	mu    sync.Mutex
	turns map[string]int
	due   map[string]time.Time // when the tool's wait for an episode ends
	late  []time.Duration
}

// Call waits as a slow service does.
func (w *waiting) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	wait := w.latency.Draw(call.Seed, call.Index)
	w.mu.Lock()
	w.due[call.Episode] = time.Now().Add(wait)
	w.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return w.Tool.Call(ctx, call)
	case <-ctx.Done():
		return producers.Observation{}, context.Cause(ctx)
	}
}

// Generate says the next turn at once.
func (w *waiting) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if due, ok := w.due[r.Episode]; ok {
		w.late = append(w.late, now.Sub(due))
	}
	text := w.call
	if w.turns[r.Episode]++; w.turns[r.Episode] > w.calls {
		text = w.end
	}
	return &generate.Result{
		Tokens: text, Logprobs: make([]float32, len(text)), Versions: make([]int32, len(text)), Stop: schemas.GenerateStopToken, Engine: "script",
	}, nil
}

// BenchmarkEpisodesThatWaitForTools runs many episodes at once in one process, each of four calls of a tool that takes seconds. It reports
// the memory of an episode that waits, and how long after its tool's end an episode asks the policy again.
func BenchmarkEpisodesThatWaitForTools(b *testing.B) {
	for _, episodes := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("episodes=%d", episodes), func(b *testing.B) {
			var late []time.Duration
			var memory, routines float64
			for b.Loop() {
				w := &waiting{
					latency: tools.LatencyConfig{Median: 3 * time.Second, P99: 8 * time.Second}, calls: 4,
					turns: make(map[string]int, episodes), due: make(map[string]time.Time, episodes), late: make([]time.Duration, 0, 4*episodes),
				}
				env := newEnvironment(b, w)
				w.Tool, env.Tools[0] = env.Tools[0], w
				w.call, w.end = env.Tokenizer.Encode("<search> sweden </search>"), env.Tokenizer.Encode("<answer> helsinki </answer>")
				bytes, running := inUse()
				var all sync.WaitGroup
				failed := make(chan error, episodes)
				for i := range episodes {
					all.Go(func() {
						ticket := newTicket(i)
						ticket.Seed = uint64(i)
						ticket.Limits = schemas.Limits{MaxTurns: 8, MaxTokens: 512}
						trajectory, _, err := producers.Rollout(b.Context(), ticket, env)
						if err == nil && len(trajectory.Turns) != w.calls+1 {
							err = fmt.Errorf("%d turns, stopped by %s", len(trajectory.Turns), trajectory.Stop)
						}
						if err != nil {
							failed <- err
						}
					})
				}
				require.Eventually(b, func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return len(w.due) == episodes
				}, time.Minute, time.Millisecond, "each has called its tool")
				waitingBytes, waitingRunning := inUse()
				memory = (waitingBytes - bytes) / float64(episodes)
				routines = (waitingRunning - running) / float64(episodes)
				all.Wait()
				require.Empty(b, failed)
				late = w.late
			}
			slices.Sort(late)
			require.Len(b, late, 4*episodes)
			b.ReportMetric(memory/1024, "KiB/episode")
			b.ReportMetric(routines, "goroutines/episode")
			b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// inUse are the bytes of heap and stacks after a collection, and the goroutines.
func inUse() (bytes, goroutines float64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse), float64(runtime.NumGoroutine())
}
