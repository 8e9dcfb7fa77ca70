package servers_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/vllm"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/child"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/schemas"
)

// realArgs are what a vLLM on a processor is started with beside Weir's own arguments: without compiled graphs, which take a minute or more to
// make. The folders of these tests have no tokenizer.
var realArgs = []string{"--enforce-eager", "--dtype", "float32", "--skip-tokenizer-init"}

// setRealEnv has the servers that the test starts be small and look nothing up in the network.
func setRealEnv(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"} {
		t.Setenv(name, value)
	}
}

// startReal starts a vLLM on a version's folder as a user does who reads docs/servers.md, and returns its URL when it is healthy. The test ends
// it.
func startReal(t *testing.T, program, dir string, more ...string) string {
	t.Helper()
	port := freePort(t)
	args, env := vllm.Kind{}.Command(servers.Start{
		Command: []string{program, "serve"}, Args: append(slices.Clone(realArgs), more...), Dir: dir, Port: port, MaxTokens: fakemodel.Config().MaxPositions,
		Slots: 16, Seed: 17, Offers: func(string) bool { return true }, Plugin: pluginOf(t, vllm.Kind{}),
	})
	return startServer(t, args, env, port)
}

// freePort is a port that nobody listens at.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is TCP
}

// startServer starts a server and returns its URL when it is healthy. The test ends it.
func startServer(t *testing.T, args, env []string, port int) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // the test's end ends it
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	p, err := child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the server's output: %s", out.Bytes())
		}
	})
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	remote := servers.NewRemote(url, "", "")
	defer remote.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for remote.Get(ctx, "/health", nil) != nil {
		select {
		case <-tick.C:
		case <-p.Done():
			require.NoError(t, p.Err(), "the server ended")
			t.Fatal("the server ended")
		case <-ctx.Done():
			t.Fatal("the server is not ready after 10 minutes")
		}
	}
	t.Logf("it serves after %.0f s", time.Since(began).Seconds())
	return url
}

// newRealWorld is a Pool over a running server, or over one that it starts where url is "".
func newRealWorld(t *testing.T, program, url string, change func(*consumers.Config)) *world {
	t.Helper()
	return newWorld(t, fakeserver.VLLM, func(c *consumers.Config) {
		c.Server.CheckEvery, c.Server.VerifyEvery = 500*time.Millisecond, 1
		if url == "" {
			c.Server.Command, c.Server.Args, c.Server.Count = []string{program, "serve"}, realArgs, 1
			c.MaxTokens = fakemodel.Config().MaxPositions
		} else {
			c.Servers = []string{url}
		}
		if change != nil {
			change(c)
		}
	})
}

// mostDifference is how far the log-probabilities of an answer lie from those of Weir's own engine with each token's version, over a cache of
// that version alone.
func (w *world) mostDifference(req *schemas.GenerateRequest, got *sampled) (most float64) {
	w.t.Helper()
	tokens := append(append([]int32(nil), req.Tokens...), got.tokens...)
	wanted := map[int32][]float32{}
	for i, v := range got.versions {
		if wanted[v] == nil {
			wanted[v] = w.oracle.Logprobs(int64(v), tokens, len(req.Tokens), req.Temperature)
		}
		most = max(most, math.Abs(float64(wanted[v][i]-got.logprobs[i])))
	}
	return most
}

// hazards are the probabilities of a stop before each token of an answer, under a version's weights.
func hazards(t *testing.T, version int64, context, answer, stops []int32) (out []float64) {
	t.Helper()
	c := fakemodel.Config()
	dec, err := native.Backend{Options: native.Options{Threads: 1}}.NewDecoder(c, fakemodel.Weights(t, version), gpu.DecoderOptions{Slots: 1, MaxTokens: c.MaxPositions})
	require.NoError(t, err)
	slot, err := dec.Open()
	require.NoError(t, err)
	next := context
	for _, token := range answer {
		all, err := dec.Extend(t.Context(), []gpu.Extension{{Slot: slot, Tokens: next, Sample: true, Temperature: 1, TopLogprobs: c.VocabSize}})
		require.NoError(t, err)
		p := 0.0
		for _, x := range all[0].Top {
			if slices.Contains(stops, x.Token) {
				p += math.Exp(float64(x.Logprob))
			}
		}
		out, next = append(out, p), []int32{token}
	}
	return out
}

// servesAsTheModel holds a server's log-probabilities, and the share of its answers that end, against Weir's own engine.
func servesAsTheModel(t *testing.T, newOne func(t *testing.T, change func(*consumers.Config)) *world) {
	t.Helper()
	t.Run("its log-probabilities are those of Weir's engine", func(t *testing.T) {
		w := newOne(t, nil)
		w.run()
		w.swapSoon(0)
		most := 0.0
		for i := range 30 {
			req := ask(fmt.Sprint("e", i), 30)
			req.Temperature = []float32{1, 0.7, 1.5}[i%3]
			most = max(most, w.mostDifference(req, w.whole(req)))
		}
		t.Logf("the largest difference of 900 log-probabilities: %.2g", most)
		require.Less(t, most, 1e-4)
	})
	t.Run("its answers end as often as the model's", func(t *testing.T) {
		w := newOne(t, func(c *consumers.Config) { c.Server.EndsEvery = 1 })
		w.run()
		w.swapSoon(0)
		stops := []int32{2, 11}
		var mu sync.Mutex
		var ended, expected, variance float64
		var group errgroup.Group
		group.SetLimit(8)
		for i := range 300 {
			group.Go(func() error {
				req := ask(fmt.Sprint("s", i), 30)
				req.StopTokens = stops
				got, err := w.generate(req)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if got.last.Stop == schemas.GenerateStopToken {
					ended++
				}
				for _, p := range hazards(t, 0, req.Tokens, got.tokens, stops) {
					expected, variance = expected+p, variance+p*(1-p)
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		t.Logf("%.0f of 300 answers ended at a stop token, %.1f by the model's probabilities: %.1f standard deviations", ended, expected, (ended-expected)/math.Sqrt(variance))
		require.Greater(t, ended, 30.0)
		require.Less(t, math.Abs(ended-expected), 4*math.Sqrt(variance))
	})
}

// A published vLLM on a processor, driven as a run drives it: the probe, log-probabilities, ends, ten versions while it generates, each mode of a
// swap.
func TestAPublishedVLLMServesARun(t *testing.T) {
	program := realpython.VLLM(t)
	setRealEnv(t)
	first := newRealWorld(t, program, "", nil)
	url := startReal(t, program, first.folder(1000))

	servesAsTheModel(t, func(t *testing.T, change func(*consumers.Config)) *world {
		t.Helper()
		return newRealWorld(t, program, url, change)
	})
	for _, mode := range []consumers.SwapMode{consumers.SwapKeep, consumers.SwapRecompute, consumers.SwapDrain} {
		t.Run("versions while it generates, "+string(mode), func(t *testing.T) {
			w := newRealWorld(t, program, url, func(c *consumers.Config) { c.Swap = mode })
			w.takeVersions(10)
			require.InDelta(t, 10, w.checks("right"), 0)
		})
	}
}

// A published vLLM without its route of tokens answers at the route of text: its log-probabilities are the same, and its calls are cut at a swap
// and go on.
func TestAPublishedVLLMServesByTheRouteOfText(t *testing.T) {
	program := realpython.VLLM(t)
	setRealEnv(t)
	url := startReal(t, program, newRealWorld(t, program, "", nil).folder(1000), "--no-enable-scale-out")
	w := newRealWorld(t, program, url, nil)
	w.run()
	w.swapSoon(0)
	req := ask("a", 30)
	require.Less(t, w.mostDifference(req, w.whole(req)), 1e-4)
	w.swapWhileGenerating(5)
	w.whole(ask("after", 30))
	require.InDelta(t, 0, testutil.ToFloat64(w.metrics.ForServers().Failed), 0)
	require.Positive(t, testutil.ToFloat64(w.metrics.ForServers().Cut))
}

// swapWhileGenerating has a server take versions 1 to n while four callers generate. Answers whose cache is of one version at a time are compared
// with Weir's engine.
func (w *world) swapWhileGenerating(n int64) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	var group errgroup.Group
	var mu sync.Mutex
	tokens, mixed, late, most := 0, 0, 0, 0.0
	began := time.Now()
	for i := range 4 {
		group.Go(func() error {
			for k := 0; ctx.Err() == nil; k++ {
				req := ask(fmt.Sprintf("c%d-%d", i, k), 50)
				got, err := w.generate(req)
				if err != nil {
					return err
				}
				if len(got.tokens) != 50 || !slices.IsSorted(got.versions) {
					return fmt.Errorf("%d tokens of versions %v: %+v", len(got.tokens), got.versions, got.last)
				}
				mu.Lock()
				tokens += len(got.tokens)
				crossed := got.versions[0] != got.versions[49]
				if crossed {
					mixed++
				}
				if crossed && w.cfg.Swap == consumers.SwapKeep && w.isNamedLate(req, got) {
					late++
				}
				if !crossed || w.cfg.Swap == consumers.SwapRecompute { // else its cache is of both versions
					most = max(most, w.mostDifference(req, got))
				}
				mu.Unlock()
			}
			return nil
		})
	}
	var swaps time.Duration
	for v := int64(1); v <= n; v++ {
		before := tokensOf(&mu, &tokens)
		until(w.t, "it generates", func() bool { return tokensOf(&mu, &tokens) >= before+50 })
		start := time.Now()
		w.swap(v)
		swaps += time.Since(start)
	}
	took := time.Since(began)
	stop()
	require.NoError(w.t, group.Wait())
	w.t.Logf("%d versions in %.2f s each beside 4 calls, %.0f tokens/s in all; %d answers of two versions, %d of them named late, the others differ by %.2g",
		n, swaps.Seconds()/float64(n), float64(tokens)/took.Seconds(), mixed, late, most)
	require.Less(w.t, late, mixed/4+1, "answers with a token of the weights before that is named by the new")
	require.Less(w.t, most, 1e-4)
	require.Equal(w.t, w.cfg.Swap != consumers.SwapDrain, mixed > 0, "answers of two versions")
}

// isNamedLate reports whether the first token that names another version than the first token does was sampled by the weights before, over
// a cache of theirs alone.
func (w *world) isNamedLate(req *schemas.GenerateRequest, got *sampled) bool {
	at := slices.IndexFunc(got.versions, func(v int32) bool { return v != got.versions[0] })
	tokens := append(append([]int32(nil), req.Tokens...), got.tokens[:at+1]...)
	before := w.oracle.Logprobs(int64(got.versions[0]), tokens, len(req.Tokens), req.Temperature)
	return math.Abs(float64(before[at]-got.logprobs[at])) < 1e-4
}

func tokensOf(mu *sync.Mutex, n *int) int {
	mu.Lock()
	defer mu.Unlock()
	return *n
}

// A published vLLM that Weir started is killed in the middle of an answer: the answer goes on at the server that takes its place, on the newest
// version.
func TestAPublishedVLLMIsKilledAndAnswersGoOn(t *testing.T) {
	program := realpython.VLLM(t)
	setRealEnv(t)
	w := newRealWorld(t, program, "", nil)
	var started lines
	w.Pool = servers.New(w.cfg, vllm.Kind{}, servers.Options{Metrics: w.metrics, Log: slog.New(slog.NewTextHandler(&started, nil))})
	w.run()
	began := time.Now()
	w.swap(0)
	t.Logf("the first version serves after %.0f s", time.Since(began).Seconds())
	w.swap(1)
	done := make(chan *sampled, 1)
	go func() {
		got, _ := w.generate(ask("a", 60))
		done <- got
	}()
	until(t, "the call runs", func() bool { return w.Load().Running > 0 })
	pids := serversOf(t, w.dir)
	require.NotEmpty(t, pids)
	for _, pid := range pids {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	got := <-done
	t.Logf("the answer is whole %.0f s after the start", time.Since(began).Seconds())
	require.Len(t, got.tokens, 60, "%+v", got.last)
	require.InDelta(t, 1, testutil.ToFloat64(w.metrics.ForServers().Restarts), 0)
	w.check(ask("a", 60), got)
}

// serversOf are the processes whose command line names a folder and that lead their group.
func serversOf(t *testing.T, dir string) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		line, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if group, err := syscall.Getpgid(pid); err == nil && group == pid && pid != os.Getpid() && strings.Contains(string(line), dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}
