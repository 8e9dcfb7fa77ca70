package consumers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
)

var _ WeightLoader = (*weights.Loader)(nil)

// numbers is a tokenizer whose words are their ids.
type numbers struct{}

func (numbers) Encode(text string) (ids []int32) {
	for word := range strings.FieldsSeq(text) {
		id, _ := strconv.Atoi(word)  // what is no number is token 0
		ids = append(ids, int32(id)) //nolint:gosec // a small number
	}
	return ids
}

func (numbers) Decode(ids []int32) string { return fmt.Sprint(ids) }

// completion is what the tests read of an answer over HTTP.
type completion struct {
	Choices []struct {
		FinishReason   *string `json:"finish_reason"`
		TokenIDs       []int32 `json:"token_ids"`
		PolicyVersions []int32 `json:"policy_versions"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
}

// publish makes a version visible as the trainer does.
func publish(t *testing.T, publisher *weights.Publisher, s Snapshot) {
	t.Helper()
	data, err := safetensors.Encode(s.Weights, safetensors.F32)
	require.NoError(t, err)
	config, err := json.Marshal(s.Config)
	require.NoError(t, err)
	shard := schemas.Shard{Hash: schemas.ContentHash(data), FullHash: schemas.ContentHash(data), Size: int64(len(data)), Encoding: schemas.EncodingSafetensors}
	require.NoError(t, publisher.Publish(t.Context(), &schemas.Manifest{
		Run: "test", Version: s.Version, Base: schemas.NoBase, Shards: []schemas.Shard{shard}, Config: config,
		ConfigHash: schemas.ContentHash(config), TokenizerHash: schemas.ContentHash(nil), DType: "float32", PublishedAt: time.Now(),
	}, map[string][]byte{shard.Hash: data}))
}

// refusing takes no event.
type refusing struct{ Stream }

func (refusing) Emit(context.Context, *schemas.Event) error { return errors.New("refused") }

func TestAnEventThatIsNotTakenIsAWarningUnlessTheRunEnds(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	d := Deps{Run: "test", Stream: refusing{}, Log: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	d.emitApplied(ctx, "engine", Applied{Version: 3})
	require.Contains(t, log.String(), "level=WARN")
	log.Reset()
	cancel()
	d.emitApplied(ctx, "engine", Applied{Version: 3})
	require.Empty(t, log.String())
}

func TestRunServesTheStreamAndHTTPAndFollowsWeights(t *testing.T) {
	t.Parallel()
	run := streamtest.Open(t, streamtest.Conn(t))
	publisher, err := weights.NewPublisher(run, weights.DefaultConfig())
	require.NoError(t, err)
	loader, err := weights.NewLoader(run, weights.DefaultConfig())
	require.NoError(t, err)
	snapshots := map[int32]Snapshot{0: nativeSnapshot(t, 0), 1: nativeSnapshot(t, 1)}

	cfg := DefaultConfig()
	cfg.Name, cfg.Swap = "engine", SwapRecompute
	cfg.OpenAI.Listen = streamtest.FreeAddress(t)
	ready, registry := make(chan error, 8), prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, cfg, Deps{
			Run: "test", Stream: OnRun(run), Weights: loader, Sampler: NewBatcher(cfg, native.Backend{}.NewDecoder, metrics),
			Tokenizer: numbers{}, Metrics: metrics, Ready: func(err error) { ready <- err },
		})
	}()
	applied := make(chan int64, 8)
	following, unfollow := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() {
		followed <- run.FollowEvents(following, streams.EventsFromStart, func(e *schemas.Event) {
			if e.Type == schemas.EventVersionApplied {
				applied <- e.PolicyVersion
			}
		})
	}()
	publish(t, publisher, snapshots[0])
	require.NoError(t, <-ready)
	require.Equal(t, int64(0), <-applied)

	generator := generate.NewClient(run, generate.ClientOptions{})
	defer generator.Close()
	tokens := []int32{1, 2, 3}
	for turn := range 4 {
		if turn == 2 {
			publish(t, publisher, snapshots[1])
			require.Equal(t, int64(1), <-applied)
		}
		req := &schemas.GenerateRequest{
			Run: "test", Episode: "e", Tokens: tokens, MaxTokens: 8, Temperature: 1, Seed: 5,
		}
		got, err := generator.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "engine", got.Engine)
		require.Equal(t, int32(turn/2), got.Versions[0])
		want, logprobs := alone(t, snapshots, req, got.Versions)
		require.Equal(t, want, got.Tokens)
		require.Equal(t, logprobs, got.Logprobs)
		tokens = append(append([]int32(nil), tokens...), append(got.Tokens, 9)...)
	}

	families, err := registry.Gather()
	require.NoError(t, err)
	counted := func(name string) float64 {
		for _, f := range families {
			if f.GetName() == name {
				return f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		require.Fail(t, "no metric", name)
		return 0
	}
	// Of contexts of 3, 12, 21 and 30 tokens, the second and the fourth but for what was in the cache: the new version has cleared it
	// before the third.
	require.InDelta(t, 3+2+21+2, counted("weir_inference_prefill_tokens_total"), 0)
	require.InDelta(t, 10+28, counted("weir_inference_cache_hit_tokens_total"), 0)
	require.InDelta(t, 4*8, counted("weir_inference_tokens_total"), 0)

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	body := `{"prompt": [1, 2, 3], "max_tokens": 4, "seed": 5, "return_token_ids": true}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://%s/v1/completions", cfg.OpenAI.Listen), strings.NewReader(body))
	require.NoError(t, err)
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	var answer completion
	require.NoError(t, json.NewDecoder(res.Body).Decode(&answer))
	require.Len(t, answer.Choices[0].TokenIDs, 4)
	require.Equal(t, []int32{1, 1, 1, 1}, answer.Choices[0].PolicyVersions)

	cancel()
	require.NoError(t, <-done)
	require.EqualError(t, <-ready, "draining")
	unfollow()
	require.NoError(t, <-followed)
}

// fakeStream is a message stream that nobody calls over.
type fakeStream struct{ *fakeWeightSource }

func (fakeStream) ServeGenerate(ctx context.Context, _ string, _ generate.Handler, _ ...generate.Option) error {
	<-ctx.Done()
	return nil
}

func (fakeStream) Emit(context.Context, *schemas.Event) error { return errors.New("nobody listens") }

// gated is a fake decoder whose steps a test lets through.
type gated struct {
	*fakeDecoder
	steps chan struct{}
}

func (d gated) Extend(ctx context.Context, in []gpu.Extension) ([]gpu.Sampled, error) {
	select {
	case <-d.steps:
		return d.fakeDecoder.Extend(ctx, in)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestRunDrainsHTTPCalls(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		steps  int // let through once Run is told to stop
		grace  time.Duration
		status int
		finish string
	}{
		{"in time", 6, time.Minute, http.StatusOK, "length"},
		{"too late", 0, 50 * time.Millisecond, http.StatusServiceUnavailable, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			source := newFakeWeightSource()
			dec := gated{&fakeDecoder{slots: map[gpu.Slot][]entry{}}, make(chan struct{})}
			cfg := smallConfig()
			cfg.OpenAI.Listen, cfg.DrainTimeout = streamtest.FreeAddress(t), test.grace
			ready := make(chan error, 2)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				newDecoder := func(_ gpu.Config, _ *gpu.Weights, o gpu.DecoderOptions) (gpu.Decoder, error) {
					dec.o = o
					return dec, nil
				}
				done <- Run(ctx, cfg, Deps{
					Run: "test", Stream: fakeStream{source}, Weights: source, Tokenizer: numbers{},
					Sampler: NewBatcher(cfg, newDecoder, nil), Ready: func(err error) { ready <- err },
				})
			}()
			source.manifests <- source.manifest(t, 0)
			require.NoError(t, <-ready)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			type answer struct {
				status int
				body   completion
				err    error
			}
			answered := make(chan answer, 1)
			go func() {
				var a answer
				defer func() { answered <- a }()
				var req *http.Request
				if req, a.err = http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+cfg.OpenAI.Listen+"/v1/completions",
					strings.NewReader(`{"prompt": "1 2", "max_tokens": 8}`)); a.err != nil {
					return
				}
				res, err := client.Do(req)
				if a.err = err; err != nil {
					return
				}
				defer res.Body.Close()
				a.status, a.err = res.StatusCode, json.NewDecoder(res.Body).Decode(&a.body)
			}()
			dec.steps <- struct{}{}
			dec.steps <- struct{}{}
			cancel()
			require.EqualError(t, <-ready, "draining")
			for range test.steps {
				dec.steps <- struct{}{}
			}
			got := <-answered
			require.NoError(t, got.err)
			require.Equal(t, test.status, got.status)
			if test.finish != "" {
				require.Equal(t, test.finish, *got.body.Choices[0].FinishReason)
				require.Equal(t, 8, got.body.Usage.CompletionTokens)
			}
			require.NoError(t, <-done)
		})
	}
}

// BenchmarkOverTheStream is episodes of four turns, 256 at once, over a broker in the same process.
func BenchmarkOverTheStream(b *testing.B) {
	run := streamtest.Open(b, streamtest.Conn(b))
	cfg := DefaultConfig()
	cfg.Name, cfg.Slots = "engine", 320
	e := NewBatcher(cfg, native.Backend{}.NewDecoder, nil)
	ctx, cancel := context.WithCancel(b.Context())
	var group errgroup.Group
	group.Go(func() error { return e.Run(ctx) })
	group.Go(func() error {
		return Deps{Stream: OnRun(run), Sampler: e}.serveCalls(ctx, cfg, newGate(e, orUnseen(nil)))
	})
	_, err := e.Swap(b.Context(), nativeSnapshot(b, 0))
	require.NoError(b, err)
	generator := generate.NewClient(run, generate.ClientOptions{})
	var sampled, episodes atomic.Int64
	b.SetParallelism(128)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := episodes.Add(1)
			tokens := []int32{1, 2, 3, 4, 5, 6, 7, 8}
			for turn := range 4 {
				got, err := generator.Generate(ctx, &schemas.GenerateRequest{
					Run: "test", Episode: strconv.FormatInt(id, 10), Tokens: tokens, MaxTokens: 6, Temperature: 1, Seed: uint64(id), Last: turn == 3,
				})
				if err != nil {
					b.Error(err)
					return
				}
				sampled.Add(int64(len(got.Tokens)))
				tokens = append(append([]int32(nil), tokens...), append(got.Tokens, 9, 9, 9, 9, 9, 9)...)
			}
		}
	})
	b.ReportMetric(float64(sampled.Load())/b.Elapsed().Seconds(), "tokens/s")
	b.StopTimer()
	generator.Close()
	cancel()
	require.NoError(b, group.Wait())
}

func TestRunNamesAPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cfg := DefaultConfig()
	cfg.OpenAI.Listen = l.Addr().String()
	source := newFakeWeightSource()
	deps := Deps{Stream: fakeStream{source}, Weights: source, Sampler: NewBatcher(cfg, nil, nil), Tokenizer: numbers{}}
	require.ErrorContains(t, Run(t.Context(), cfg, deps), "address already in use; choose another openai.listen")
	deps.Tokenizer = nil
	require.ErrorContains(t, Run(t.Context(), cfg, deps), "there is no tokenizer")
}

func TestRunChecksWhatItIsGiven(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Slots, cfg.Swap = -1, "never"
	err := Run(t.Context(), cfg, Deps{})
	require.ErrorContains(t, err, "inference: slots: -1: must be positive")
	require.ErrorContains(t, err, `swap: unknown "never" (valid: keep, recompute, drain)`)
	require.ErrorContains(t, err, "Deps need a Stream, Weights and a Sampler")
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	_, err := NewMetrics(registry)
	require.NoError(t, err)
	_, err = NewMetrics(registry)
	require.ErrorContains(t, err, "register inference metrics")
}

// calling is a message stream that makes one call, and like streams/generate ends it when it stops serving.
type calling struct {
	fakeStream
	req   *schemas.GenerateRequest
	began chan struct{}
}

func (c calling) ServeGenerate(ctx context.Context, _ string, h generate.Handler, _ ...generate.Option) error {
	var group errgroup.Group
	group.Go(func() error {
		close(c.began)
		err := h(ctx, c.req, func(*schemas.GenerateChunk) error { return errors.New("there is no such version") })
		if !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	<-ctx.Done()
	return group.Wait()
}

func TestDrainDoesNotWaitForWeights(t *testing.T) {
	t.Parallel()
	source := newFakeWeightSource()
	cfg := smallConfig()
	cfg.DrainTimeout = time.Hour
	wants := ask("a", 1)
	wants.MinVersion = 1
	stream := calling{fakeStream{source}, wants, make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	r := newRig(cfg, false)
	go func() { done <- Run(ctx, cfg, Deps{Run: "test", Stream: stream, Weights: source, Sampler: r.Batcher}) }()
	source.manifests <- source.manifest(t, 0)
	<-stream.began
	cancel()
	require.NoError(t, <-done)
}
