package servers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/vllm"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/schemas"
)

// Finding B1 of the servers' review: SGLang looks at no stop token with ignore_eos, and what came was kept only where it happened not
// to stop. A call needs one request, and the calls that end at a stop are as many as the model's own.
func TestCallsEndAtStopTokensWithOneRequestEach(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good())
		w.run()
		w.swapSoon(0)
		before, stopped := w.fakes[0].Calls(generatePath[kind]), 0
		for i := range 20 {
			req := ask(fmt.Sprint("e", i), 20)
			for token := range int32(14) {
				req.StopTokens = append(req.StopTokens, token)
			}
			got, err := w.generate(req)
			require.NoError(t, err)
			if got.last.Stop == schemas.GenerateStopToken {
				stopped++
			}
		}
		requests := w.fakes[0].Calls(generatePath[kind]) - before
		require.Greater(t, stopped, 15, "of 20 calls that half of the vocabulary stops")
		// An answer also ends at the model's own end, after which the call goes on.
		require.LessOrEqual(t, requests, 30)
	})
}

// Finding A3 of the servers' review: before 0.32.0 vLLM ends an aborted call's stream without a finish_reason. Its tokens are kept.
func TestTokensOfAnAbortedCallAreKept(t *testing.T) {
	t.Parallel()
	for _, release := range []fakeserver.Release{fakeserver.VLLM27, fakeserver.VLLM33} {
		t.Run("release "+string(release), func(t *testing.T) {
			t.Parallel()
			slow := good()
			slow.Release, slow.NoSpans, slow.Pace = release, true, 10*time.Millisecond
			w := newWorld(t, fakeserver.VLLM, nil, slow)
			metrics, err := consumers.NewMetrics(nil)
			require.NoError(t, err)
			w.Pool = servers.New(w.cfg, vllm.Kind{}, servers.Options{Metrics: metrics})
			w.run()
			w.swapSoon(0)
			mixed := 0
			for v := int64(1); v < 9; v++ {
				before := w.fakes[0].Sampled()
				done := make(chan *sampled, 1)
				go func() {
					got, _ := w.generate(ask(fmt.Sprint("e", v), 40))
					done <- got
				}()
				until(t, "the call has tokens", func() bool { return w.fakes[0].Sampled() > before+4 })
				w.swapSoon(v)
				got := <-done
				require.Len(t, got.versions, 40, "%+v", got.last)
				if got.versions[0] != got.versions[39] {
					mixed++
				}
			}
			require.Positive(t, mixed)
			require.Zero(t, testutil.ToFloat64(metrics.ForServers().Failed))
		})
	}
}

// Findings B4 and Q6: calls that belong to no episode run at the same time, and a server refuses an id that is under way.
func TestCallsOfNoEpisodeRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		slow := good()
		slow.Pace = 5 * time.Millisecond
		w := newWorld(t, kind, nil, slow)
		w.run()
		w.swapSoon(0)
		var group errgroup.Group
		for range 4 {
			group.Go(func() error {
				got, err := w.generate(ask("", 20))
				if err == nil && got.last.Stop != schemas.GenerateLength {
					err = fmt.Errorf("%+v", got.last)
				}
				return err
			})
		}
		require.NoError(t, group.Wait())
		// A caller gives up a call and asks again, while the server still ends the first.
		gone := errors.New("gone")
		require.ErrorIs(t, w.Stream(t.Context(), ask("e", 20), func(*schemas.GenerateChunk) error { return gone }), gone)
		w.whole(ask("e", 20))
	})
}

// Finding B2 of the servers' review: a cache that is emptied while retracted calls wait ends SGLang. Swaps under load leave it alive, in each
// mode, and tokens are their version's.
func TestSGLangLivesThroughSwapsUnderLoad(t *testing.T) {
	t.Parallel()
	for _, mode := range []consumers.SwapMode{consumers.SwapKeep, consumers.SwapRecompute, consumers.SwapDrain} {
		release := fakeserver.SGLang19 // a cache that cannot be emptied ends it
		if mode == consumers.SwapRecompute {
			release = fakeserver.SGLang23 // a cache that cannot be emptied fails the load
		}
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			o := good()
			o.Release, o.Pace = release, time.Millisecond
			w := newWorld(t, fakeserver.SGLang, func(c *consumers.Config) { c.Swap = mode }, o)
			w.run()
			w.swapSoon(0)
			ctx, stop := context.WithCancel(t.Context())
			var group errgroup.Group
			for i := range 4 {
				group.Go(func() error {
					for n := 0; ctx.Err() == nil; n++ {
						got, err := w.generate(ask(fmt.Sprintf("c%d-%d", i, n), 40))
						if err != nil {
							return err
						}
						if len(got.tokens) != 40 {
							return fmt.Errorf("%d tokens: %+v", len(got.tokens), got.last)
						}
					}
					return nil
				})
			}
			for v := int64(1); v < 6; v++ {
				w.swapSoon(v)
				if mode == consumers.SwapKeep {
					continue // a call that goes on keeps the cache of the weights before
				}
				w.whole(ask(fmt.Sprint("after", v), 1))
			}
			stop()
			require.NoError(t, group.Wait())
			require.False(t, w.fakes[0].Dead())
		})
	}
}

// Finding B3 of the servers' review: a server with spans that does not know cache_salt would give a call after a swap the keys and values of the
// weights before. Its calls are cut, and its cache is emptied.
func TestAServerWithoutSaltsGivesNoStalePrefix(t *testing.T) {
	t.Parallel()
	o := good()
	o.Release, o.NoSalt = fakeserver.SGLang23, true
	w := newWorld(t, fakeserver.SGLang, func(c *consumers.Config) { c.Swap = consumers.SwapKeep }, o)
	w.run()
	for v := range int64(4) {
		w.swapSoon(v)
		req := ask("e", 6)
		req.Tokens = append(req.Tokens, 4, 5, 6, 7, 8, 9)
		w.whole(req)
	}
}

// Finding B10 of the servers' review: SGLang aborts a request that it will never take, with a status: it is refused once.
func TestAnAbortWithAStatusIsARefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fakeserver.SGLang, nil, good())
	w.run()
	w.swapSoon(0)
	w.fakes[0].Inject("refused", 1)
	got, err := w.generate(ask("a", 4))
	require.NoError(t, err)
	require.Equal(t, schemas.GenerateError, got.last.Stop)
	require.False(t, got.last.Retry)
	require.Contains(t, got.last.Error, "too long")
}

// Finding A14 of the servers' review: the folder of a Llama 3 has several tokens that end an answer.
func TestAFolderWithSeveralEndsIsTheSameModel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil)
		path := filepath.Join(w.folder(1000), "config.json")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		config := map[string]any{}
		require.NoError(t, json.Unmarshal(data, &config))
		config["eos_token_id"] = []int{1, 2}
		data, err = json.Marshal(config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o644))
		w2 := newWorldOver(t, w, nil, w.fake(good()).URL())
		w2.run()
		w2.swap(0)
		w2.whole(ask("a", 4))
	})
}

// Finding A7 of the servers' review: vLLM reports cached tokens only to calls that ask for usage.
func TestPrefixHitsAreCounted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		o := good()
		o.PromptDetails = true
		w := newWorld(t, kind, nil, o)
		w.run()
		w.swapSoon(0)
		w.whole(ask("e", 8))
		w.whole(ask("e", 8))
		require.Positive(t, w.Load().PrefixHits)
	})
}

// Finding A5 of the servers' review: --enable-scale-out ends a vLLM before 0.30.0, and switches the route of tokens on in later ones.
// Finding B7: keys are not on the command line.
func TestAStartedServerOfEachReleaseServes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fake := filepath.Join(dir, "fake")
	out, err := exec.Command("go", "build", "-p", "1", "-o", fake, "github.com/weir-rl/weir/internal/fakeserver/fake").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, releases := range []map[fakeserver.Kind]fakeserver.Release{oldest, newest} {
		each(t, func(t *testing.T, kind fakeserver.Kind) {
			seen, release := filepath.Join(t.TempDir(), "arguments"), releases[kind]
			script := fmt.Sprintf(`echo "$@" >> %s; exec %s %s --release "%s" "$@"`, seen, fake, kind, release)
			w := newWorld(t, kind, func(c *consumers.Config) {
				c.Server.Command, c.Server.Count = []string{"sh", "-c", script, "sh"}, 1
				c.Server.APIKey, c.Server.AdminAPIKey = "secret-caller", "secret-admin"
			})
			w.run()
			w.swapSoon(0)
			w.whole(ask("a", 4))
			text, err := os.ReadFile(seen)
			require.NoError(t, err)
			require.NotContains(t, string(text), "secret")
			require.Equal(t, release == fakeserver.VLLM33, strings.Contains(string(text), "--enable-scale-out"), "%s", text)
		})
	}
}
