package servers_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/sglang"
	"github.com/weir-rl/weir/consumers/vllm"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
	"github.com/weir-rl/weir/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var kinds = map[fakeserver.Kind]servers.Kind{fakeserver.VLLM: vllm.Kind{}, fakeserver.SGLang: sglang.Kind{}}

// newest and oldest are the releases of each kind that were read and that Weir takes.
var (
	newest = map[fakeserver.Kind]fakeserver.Release{fakeserver.VLLM: fakeserver.VLLM33, fakeserver.SGLang: fakeserver.SGLang23}
	oldest = map[fakeserver.Kind]fakeserver.Release{fakeserver.VLLM: fakeserver.VLLM27, fakeserver.SGLang: fakeserver.SGLang10}
)

// good is a server that training can use, of either kind.
func good() fakeserver.Options { return fakeserver.Options{Processed: true, NoDefaults: true} }

// world is a Pool over fakes, with folders of versions.
type world struct {
	*servers.Pool
	t       *testing.T
	kind    fakeserver.Kind
	cfg     consumers.Config
	dir     string
	fakes   []*fakeserver.Server
	oracle  *fakemodel.Oracle
	metrics *consumers.Metrics

	mu      sync.Mutex
	folders map[int64]string
}

// newWorld has fakes as the options say, and a Pool over them that does not run yet. change may be nil.
func newWorld(t *testing.T, kind fakeserver.Kind, change func(*consumers.Config), options ...fakeserver.Options) *world {
	t.Helper()
	w := &world{t: t, kind: kind, dir: t.TempDir(), folders: map[int64]string{}, oracle: fakemodel.NewOracle(t)}
	w.cfg = consumers.DefaultConfig()
	w.cfg.Engine, w.cfg.Server.Dir = string(kind), w.dir
	// Nothing waits for a clock: checks come often, and limits are guards.
	w.cfg.Server.CheckEvery = 20 * time.Millisecond
	for _, o := range options {
		w.cfg.Servers = append(w.cfg.Servers, w.fake(o).URL())
	}
	if change != nil {
		change(&w.cfg)
	}
	require.NoError(t, w.cfg.Validate())
	metrics, err := consumers.NewMetrics(nil)
	require.NoError(t, err)
	w.metrics = metrics
	log := slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.Pool = servers.New(w.cfg, kinds[kind], servers.Options{Metrics: metrics, Log: log})
	return w
}

// newWorldOver is another Pool over servers that a world has started.
func newWorldOver(t *testing.T, from *world, change func(*consumers.Config), urls ...string) *world {
	t.Helper()
	return newWorld(t, from.kind, func(c *consumers.Config) {
		c.Servers = urls
		if change != nil {
			change(c)
		}
	})
}

// logWriter shows the log of a test that fails.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// fake starts one more server, which begins with weights that no version has.
func (w *world) fake(o fakeserver.Options) *fakeserver.Server {
	w.t.Helper()
	o.NewDecoder = native.Backend{Options: native.Options{Threads: 1}}.NewDecoder
	o.Dir = w.folder(1000)
	s := fakeserver.Start(w.t, w.kind, o)
	w.fakes = append(w.fakes, s)
	return s
}

// folder is a version's.
func (w *world) folder(version int64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.folders[version] == "" {
		w.folders[version] = fakemodel.Folder(w.t, w.dir, version)
	}
	return w.folders[version]
}

func (w *world) snapshot(version int64) consumers.Snapshot {
	return consumers.Snapshot{Version: version, Config: fakemodel.Config(), Dir: w.folder(version)}
}

// run runs the Pool until the test ends.
func (w *world) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
}

func (w *world) swap(version int64) {
	w.t.Helper()
	_, err := w.Swap(w.t.Context(), w.snapshot(version))
	require.NoError(w.t, err)
	require.Equal(w.t, version, w.Version())
}

// sampled is what a call came to.
type sampled struct {
	tokens   []int32
	logprobs []float32
	versions []int32
	last     schemas.GenerateChunk
}

func (w *world) generate(req *schemas.GenerateRequest) (*sampled, error) {
	out := &sampled{}
	err := w.Generate(w.t.Context(), req, func(c *schemas.GenerateChunk) error {
		out.tokens, out.logprobs = append(out.tokens, c.Tokens...), append(out.logprobs, c.Logprobs...)
		out.versions, out.last = append(out.versions, c.Versions...), *c
		return nil
	})
	return out, err
}

func ask(episode string, most int) *schemas.GenerateRequest {
	return &schemas.GenerateRequest{Episode: episode, Tokens: schemas.Int32s{1, 2, 3}, MaxTokens: most, Temperature: 1, Seed: 5}
}

// whole makes a call and checks that it is whole: as many tokens as asked for, each with the log-probability that the version has
// which it names. The calls that it compares are of one version each.
func (w *world) whole(req *schemas.GenerateRequest) *sampled {
	w.t.Helper()
	got, err := w.generate(req)
	require.NoError(w.t, err)
	w.check(req, got)
	return got
}

func (w *world) check(req *schemas.GenerateRequest, got *sampled) {
	w.t.Helper()
	require.Equal(w.t, schemas.GenerateLength, got.last.Stop, "%+v", got.last)
	require.Len(w.t, got.tokens, req.MaxTokens)
	tokens := append(append([]int32(nil), req.Tokens...), got.tokens...)
	byVersion := map[int32][]float32{}
	for i, v := range got.versions {
		if byVersion[v] == nil {
			byVersion[v] = w.oracle.Logprobs(int64(v), tokens, len(req.Tokens), req.Temperature)
		}
		require.InDelta(w.t, byVersion[v][i], got.logprobs[i], 1e-3, "token %d of version %d", i, v)
	}
}

// each runs a test for both kinds.
func each(t *testing.T, test func(t *testing.T, kind fakeserver.Kind)) {
	t.Helper()
	for kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// until waits until something is so; what it looks at changes by itself.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, fmt.Errorf("waited for: %s", what))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.NoError(t, context.Cause(ctx))
		}
	}
}
