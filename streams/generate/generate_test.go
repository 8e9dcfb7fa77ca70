package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// nextToken is the token that every engine of these tests samples after a context: it depends on the seed, the
// position and the context's sum, as a model's does.
func nextToken(seed uint64, context []int32) int32 {
	sum := int32(seed)
	for i, v := range context {
		sum = (sum*31 + v + int32(i)) % 1000
	}
	return (sum%1000 + 1000) % 1000
}

// sampled is what one engine would sample.
func sampled(req *schemas.GenerateRequest, n int) []int32 {
	context := slices.Clone([]int32(req.Tokens))
	for range n {
		context = append(context, nextToken(req.Seed, context))
	}
	return context[len(req.Tokens):]
}

// sampler serves calls a token a chunk. after, if set, is asked before each chunk.
func sampler(version int32, after func(i int) error) Handler {
	return func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
		context := slices.Clone([]int32(req.Tokens))
		for i := range req.MaxTokens {
			if after != nil {
				if err := after(i); err != nil {
					return err
				}
			}
			token := nextToken(req.Seed, context)
			context = append(context, token)
			chunk := &schemas.GenerateChunk{
				Tokens: schemas.Int32s{token}, Logprobs: schemas.Float32s{-float32(len(context))}, Versions: schemas.Runs{version},
			}
			if stop := slices.Contains(req.StopTokens, token); stop || i == req.MaxTokens-1 {
				chunk.Done, chunk.Stop = true, schemas.GenerateLength
				if stop {
					chunk.Stop = schemas.GenerateStopToken
				}
			}
			if err := emit(chunk); err != nil {
				return err
			}
			if chunk.Done {
				return nil
			}
		}
		return nil
	}
}

// withKeepAlive sets how long a call of an engine is silent before an empty chunk is sent for it.
func withKeepAlive(d time.Duration) Option { return func(s *server) { s.keepAlive = d } }

// serving starts an engine in a connection of its own and returns how to stop it.
func (f *fixture) serving(t *testing.T, engine string, h Handler, opts ...Option) (stop func()) {
	t.Helper()
	run := f.attach(t)
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, run, engine, h, opts...) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	// Two flushes: the subscriptions were made by the goroutine, and have reached the broker when an answer comes.
	require.Eventually(t, func() bool {
		reply, err := run.NATS().Request(engineSubject(run.GenerateSubject(), engine), nil, time.Second)
		return err == nil && len(reply.Data) > 0
	}, time.Minute, 5*time.Millisecond)
	return stop
}

// generating begins a call and returns how to wait for its end.
func generating(ctx context.Context, g *Client, req *schemas.GenerateRequest) func() (*Result, error) {
	var got *Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = g.Generate(ctx, req)
	}()
	return func() (*Result, error) {
		<-done
		return got, err
	}
}

func request(episode string, n int) *schemas.GenerateRequest {
	return &schemas.GenerateRequest{
		Run: "test", Episode: episode, Tokens: schemas.Int32s{1, 2, 3}, MaxTokens: n, Temperature: 1, Seed: 7, StopTokens: schemas.Int32s{1001},
	}
}

// requireWhole checks that nothing is missing and nothing came twice.
func requireWhole(t *testing.T, req *schemas.GenerateRequest, got *Result) {
	t.Helper()
	want := sampled(req, len(got.Tokens))
	require.Equal(t, want, got.Tokens)
	require.Len(t, got.Versions, len(want))
	require.Len(t, got.Logprobs, len(want))
	logprobs := make([]float32, len(want))
	for i := range logprobs {
		logprobs[i] = -float32(len(req.Tokens) + i + 1)
	}
	require.Equal(t, logprobs, got.Logprobs)
}

func TestGenerate(t *testing.T) {
	viaTransports(t, func(f *fixture) {
		t := f.t
		f.serving(t, "engine-a", sampler(3, nil))
		g := NewClient(f.attach(t), ClientOptions{})
		req := request("e1", 20)
		got, err := g.Generate(f.ctx, req)
		require.NoError(t, err)
		require.Len(t, got.Tokens, 20)
		require.Equal(t, schemas.GenerateLength, got.Stop)
		require.Equal(t, "engine-a", got.Engine)
		require.Equal(t, slices.Repeat([]int32{3}, 20), got.Versions)
		requireWhole(t, req, got)

		stop := request("e2", 20)
		stop.StopTokens = schemas.Int32s{sampled(stop, 5)[4]}
		got, err = g.Generate(f.ctx, stop)
		require.NoError(t, err)
		require.Equal(t, schemas.GenerateStopToken, got.Stop)
		require.Equal(t, stop.StopTokens[0], got.Tokens[len(got.Tokens)-1])
	})
}

func TestGenerateManyAtOnce(t *testing.T) {
	viaTransports(t, func(f *fixture) {
		t := f.t
		f.serving(t, "engine-a", sampler(3, nil), WithMaxCalls(4))
		f.serving(t, "engine-b", sampler(4, nil), WithMaxCalls(4))
		g := NewClient(f.attach(t), ClientOptions{})
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				req := request(fmt.Sprint("e", i), 10+i)
				got, err := g.Generate(f.ctx, req)
				if err != nil || !slices.Equal(got.Tokens, sampled(req, 10+i)) {
					t.Errorf("episode %d: %v: %v", i, got, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestEpisodeStaysWithItsEngine(t *testing.T) {
	f := newFixture(t, false)
	for i := range 4 {
		f.serving(t, fmt.Sprint("engine-", i), sampler(0, nil))
	}
	g := NewClient(f.run, ClientOptions{})
	first, err := g.Generate(f.ctx, request("e1", 3))
	require.NoError(t, err)
	for range 20 {
		again, err := g.Generate(f.ctx, request("e1", 3))
		require.NoError(t, err)
		require.Equal(t, first.Engine, again.Engine)
	}
	last := request("e1", 3)
	last.Last = true
	_, err = g.Generate(f.ctx, last)
	require.NoError(t, err)
	require.Empty(t, g.engines)
}

// Invariant: whatever dies in between, the tokens are those that one engine would have sampled, each once.
func TestWhateverDiesInBetweenTheTokensAreThoseThatOneEngineWouldHaveSampledEachOnce(t *testing.T) {
	viaTransports(t, func(f *fixture) {
		t := f.t
		t.Run("engine stops in the middle", func(t *testing.T) {
			reached := make(chan struct{})
			stop := f.serving(t, "engine-a", func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
				return sampler(1, func(i int) error {
					if i == 5 {
						close(reached)
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				})(ctx, req, emit)
			})
			g := NewClient(f.attach(t), ClientOptions{})
			defer g.Close()
			req := request("e1", 12)
			answer := generating(f.ctx, g, req)
			<-reached
			f.serving(t, "engine-b", sampler(2, nil))
			stop()
			got, err := answer()
			require.NoError(t, err)
			requireWhole(t, req, got)
			require.Equal(t, []int32{1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2}, got.Versions)
			require.Equal(t, "engine-b", got.Engine)
		})
		t.Run("engine falls silent", func(t *testing.T) {
			stuck := make(chan struct{})
			t.Cleanup(func() { close(stuck) })
			calls := new(atomic.Int32)
			// It keeps no call alive, as a machine that hangs.
			f.serving(t, "engine-c", func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
				if calls.Add(1) > 1 {
					return sampler(2, nil)(ctx, req, emit)
				}
				return sampler(1, func(i int) error {
					if i == 3 {
						select {
						case <-stuck:
						case <-ctx.Done():
						}
						return errors.New("woken up")
					}
					return nil
				})(ctx, req, emit)
			}, withKeepAlive(time.Hour))
			g := NewClient(f.attach(t), ClientOptions{Silence: time.Second})
			defer g.Close()
			req := request("e2", 9)
			got, err := g.Generate(f.ctx, req)
			require.NoError(t, err)
			requireWhole(t, req, got)
			// On a loaded machine the client may take the engine for silent before it has spoken.
			require.True(t, slices.IsSorted(got.Versions), got.Versions)
			require.Equal(t, int32(2), got.Versions[3], got.Versions)
		})
	})
}

func TestGenerateOutlivesTheBroker(t *testing.T) {
	f := newFixture(t, true)
	reached, restarted := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.serving(t, "engine-a", func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
		return sampler(1, func(i int) error {
			if i == 5 {
				once.Do(func() {
					close(reached)
					<-restarted
				})
			}
			return nil
		})(ctx, req, emit)
	})
	g := NewClient(f.attach(t), ClientOptions{Silence: time.Second, Retries: 100})
	defer g.Close()
	req := request("e1", 12)
	answer := generating(f.ctx, g, req)
	<-reached
	f.restart(t)
	close(restarted)
	got, err := answer()
	require.NoError(t, err)
	require.Len(t, got.Tokens, 12)
	requireWhole(t, req, got)
}

func TestLostChunkIsNoticed(t *testing.T) {
	f := newFixture(t, false)
	// An engine by hand, whose first answer misses chunk 1.
	n := new(atomic.Int32)
	sub, err := f.run.NATS().QueueSubscribe(f.run.GenerateSubject(), queueGroup, func(m *nats.Msg) {
		req := new(schemas.GenerateRequest)
		if err := schemas.Unmarshal(m.Data, req); err != nil {
			return
		}
		skip := n.Add(1) == 1
		for i, token := range sampled(req, req.MaxTokens) {
			if skip && i == 1 {
				continue
			}
			chunk := &schemas.GenerateChunk{
				Episode: req.Episode, Engine: "engine-x", Index: i, Tokens: schemas.Int32s{token},
				Logprobs: schemas.Float32s{-float32(len(req.Tokens) + i + 1)}, Versions: schemas.Runs{0},
			}
			if i == req.MaxTokens-1 {
				chunk.Done, chunk.Stop = true, schemas.GenerateLength
			}
			data, err := schemas.Marshal(chunk)
			if err == nil {
				_ = m.Respond(data)
			}
		}
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Unsubscribe()) }()
	g := NewClient(f.run, ClientOptions{})
	defer g.Close()
	req := request("e1", 6)
	got, err := g.Generate(f.ctx, req)
	require.NoError(t, err)
	requireWhole(t, req, got)
	require.Equal(t, int32(2), n.Load())
}

func TestSlowEngineIsKeptAlive(t *testing.T) {
	f := newFixture(t, false)
	release := make(chan struct{})
	f.serving(t, "engine-a", func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
		<-release
		return sampler(0, nil)(ctx, req, emit)
	}, withKeepAlive(5*time.Millisecond), WithMaxCalls(1))
	g := NewClient(f.run, ClientOptions{Silence: 5 * time.Second, Retries: 1})
	defer g.Close()
	var wg sync.WaitGroup
	for i := range 3 { // one in a handler, two in the queue
		wg.Go(func() {
			req := request(fmt.Sprint("e", i), 3)
			got, err := g.Generate(f.ctx, req)
			if err != nil || !slices.Equal(got.Tokens, sampled(req, 3)) {
				t.Errorf("%v: %v", got, err)
			}
		})
	}
	// Two silences, which would be a failure too many, pass before the engine speaks.
	select {
	case <-time.After(11 * time.Second):
	case <-f.ctx.Done():
	}
	close(release)
	wg.Wait()
}

func TestGenerateWaitsForTheFirstEngine(t *testing.T) {
	f := newFixture(t, false)
	g := NewClient(f.run, ClientOptions{Retries: 1})
	defer g.Close()
	done := make(chan error, 1)
	req := request("e1", 3)
	go func() {
		got, err := g.Generate(f.ctx, req)
		if err == nil && !slices.Equal(got.Tokens, sampled(req, 3)) {
			err = fmt.Errorf("got %v", got.Tokens)
		}
		done <- err
	}()
	f.serving(t, "engine-a", sampler(0, nil))
	require.NoError(t, <-done)
}

func TestRefusals(t *testing.T) {
	f := newFixture(t, false)
	g := NewClient(f.run, ClientOptions{Retries: 2})
	defer g.Close()
	calls := new(atomic.Int32)
	refuse := new(atomic.Pointer[error])
	f.serving(t, "engine-a", func(context.Context, *schemas.GenerateRequest, func(*schemas.GenerateChunk) error) error {
		calls.Add(1)
		return *refuse.Load()
	})
	set := func(err error) {
		refuse.Store(&err)
		calls.Store(0)
	}

	set(errors.New("context longer than the model's 4096"))
	_, err := g.Generate(f.ctx, request("e1", 3))
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "context longer than the model's 4096")
	require.Equal(t, int32(1), calls.Load(), "no other engine would do better")

	set(fmt.Errorf("loading weights: %w", ErrElsewhere))
	_, err = g.Generate(f.ctx, request("e1", 3))
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "loading weights")
	require.Equal(t, int32(3), calls.Load(), "one call and two retries")

	set(nil)
	_, err = g.Generate(f.ctx, request("e1", 3))
	require.ErrorContains(t, err, "without its last chunk")

	_, err = g.Generate(f.ctx, request("", 0))
	require.ErrorIs(t, err, schemas.ErrInvalid)
	foreign := request("e1", 3)
	foreign.Run = "other"
	_, err = g.Generate(f.ctx, foreign)
	require.ErrorContains(t, err, `request of run "other"`)
	huge := request("e1", 3)
	huge.Tokens = make(schemas.Int32s, f.run.NATS().MaxPayload())
	_, err = g.Generate(f.ctx, huge)
	require.ErrorIs(t, err, streams.ErrTooLarge)
	require.ErrorIs(t, Serve(f.ctx, f.run, "a.b", nil), streams.ErrName)
}

func TestCancelStopsTheEngine(t *testing.T) {
	viaTransports(t, func(f *fixture) {
		t := f.t
		started, stopped := make(chan struct{}), make(chan error, 1)
		f.serving(t, "engine-a", func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
			close(started)
			<-ctx.Done()
			stopped <- emit(new(schemas.GenerateChunk))
			return ctx.Err()
		})
		g := NewClient(f.attach(t), ClientOptions{})
		defer g.Close()
		ctx, cancel := context.WithCancel(f.ctx)
		go func() {
			<-started
			cancel()
		}()
		_, err := g.Generate(ctx, request("e1", 3))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, <-stopped, context.Canceled, "a call that is over takes no more")
		require.Empty(t, g.calls)
	})
}

// A caller that dies cannot cancel its calls: the broker finds nobody who listens for a chunk, and the engine stops.
func TestAnEngineStopsForACallerThatDied(t *testing.T) {
	f := newFixture(t, true)
	started, stopped := make(chan struct{}), make(chan error, 1)
	f.serving(t, "engine-a", func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
		if err := emit(&schemas.GenerateChunk{Tokens: []int32{1}, Logprobs: []float32{-1}, Versions: []int32{0}}); err != nil {
			return err
		}
		close(started)
		<-ctx.Done()
		stopped <- ctx.Err()
		return ctx.Err()
	})
	caller := streamtest.Connect(t, f.config)
	run, err := caller.Attach(f.ctx, "test")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := NewClient(run, ClientOptions{}).Generate(f.ctx, request("e1", 3))
		ended <- err
	}()
	<-started
	caller.Close() // the next chunk is a sign of life, a second later
	require.ErrorIs(t, <-stopped, context.Canceled)
	require.Error(t, <-ended)
}

// What an engine had sampled when the caller's time was over comes with the error: a policy that talks past it is not unheard.
func TestWhatCameBeforeTheContextEndedComesWithItsError(t *testing.T) {
	viaTransports(t, func(f *fixture) {
		t := f.t
		f.serving(t, "engine-a", func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
			err := emit(&schemas.GenerateChunk{Tokens: schemas.Int32s{7, 8}, Logprobs: schemas.Float32s{-1, -2}, Versions: schemas.Runs{3, 3}})
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		})
		g := NewClient(f.attach(t), ClientOptions{})
		defer g.Close()
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		end := generating(ctx, g, request("e1", 3))
		require.Eventually(t, func() bool { // the chunk is there, or was taken
			g.mu.Lock()
			defer g.mu.Unlock()
			for _, r := range g.calls {
				r.mu.Lock()
				came := len(r.in)+len(r.out) > 0
				r.mu.Unlock()
				if came {
					return true
				}
			}
			return false
		}, time.Minute, time.Millisecond)
		cancel()
		got, err := end()
		require.ErrorIs(t, err, context.Canceled)
		require.NotNil(t, got)
		require.Equal(t, []int32{7, 8}, got.Tokens)
		require.Equal(t, []float32{-1, -2}, got.Logprobs)
		require.Equal(t, []int32{3, 3}, got.Versions)
		require.Empty(t, got.Stop)
	})
}

func TestForgetReachesEveryEngine(t *testing.T) {
	f := newFixture(t, false)
	forgotten := make(chan string, 2)
	for _, engine := range []string{"engine-a", "engine-b"} {
		f.serving(t, engine, sampler(0, nil), WithForget(func(episode string) { forgotten <- engine + " " + episode }))
	}
	g := NewClient(f.run, ClientOptions{})
	defer g.Close()
	_, err := g.Generate(f.ctx, request("e1", 3))
	require.NoError(t, err)
	require.NoError(t, g.Forget("e1"))
	require.ElementsMatch(t, []string{"engine-a e1", "engine-b e1"}, []string{<-forgotten, <-forgotten})
	require.Empty(t, g.engines)
}

func TestEmitAfterTheLastChunkFails(t *testing.T) {
	f := newFixture(t, false)
	late := make(chan error, 1)
	f.serving(t, "engine-a", func(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
		if err := sampler(0, nil)(ctx, req, emit); err != nil {
			return err
		}
		late <- emit(new(schemas.GenerateChunk))
		return nil
	})
	g := NewClient(f.run, ClientOptions{})
	defer g.Close()
	_, err := g.Generate(f.ctx, request("e1", 3))
	require.NoError(t, err)
	require.ErrorIs(t, <-late, streams.ErrClosed)
	g.Close()
	_, err = g.Generate(f.ctx, request("e1", 3))
	require.ErrorIs(t, err, streams.ErrClosed)
}

// BenchmarkGenerate is one call of one token over the in-process connection: what the wire adds to an engine.
func BenchmarkGenerate(b *testing.B) {
	f := newFixture(b, false).run
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, f, "engine-a", sampler(0, nil)) }()
	g := NewClient(f, ClientOptions{})
	req := request("e1", 1)
	req.Tokens = make(schemas.Int32s, 256)
	_, err := g.Generate(ctx, req)
	require.NoError(b, err)
	for b.Loop() {
		if _, err := g.Generate(ctx, req); err != nil {
			b.Fatal(err)
		}
	}
	g.Close()
	cancel()
	require.NoError(b, <-done)
}
