package servers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/schemas"
)

// swapSoon is swap as the follower does it: what fails is offered again.
func (w *world) swapSoon(version int64) {
	w.t.Helper()
	until(w.t, fmt.Sprintf("version %d in use", version), func() bool {
		_, err := w.Swap(w.t.Context(), w.snapshot(version))
		return err == nil
	})
	require.Equal(w.t, version, w.Version())
}

// generatePath and the others are a kind's routes.
var (
	generatePath = map[fakeserver.Kind]string{fakeserver.VLLM: "/inference/v1/generate", fakeserver.SGLang: "/generate"}
	pausePath    = map[fakeserver.Kind]string{fakeserver.VLLM: "/pause", fakeserver.SGLang: "/pause_generation"}
	loadPath     = map[fakeserver.Kind]string{fakeserver.VLLM: "/collective_rpc", fakeserver.SGLang: "/update_weights_from_disk"}
	resumePath   = map[fakeserver.Kind]string{fakeserver.VLLM: "/resume", fakeserver.SGLang: "/continue_generation"}
)

// Whatever becomes of an answer, the call is whole in the end, and each token's log-probability is its version's.
func TestACallIsWholeWhateverBecomesOfAnAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for _, spans := range []bool{true, false} {
			for _, name := range []string{
				"queue", "sentinel", "null", "positive", "token", "fewer", "spans", "finish", "foreign", "error", "cut", "reset",
				"503 " + generatePath[kind], "500 " + generatePath[kind], "reset " + generatePath[kind],
			} {
				if (name == "spans" || name == "foreign") && !spans {
					continue // they are faults of spans
				}
				t.Run(fmt.Sprintf("%s, spans %t", name, spans), func(t *testing.T) {
					t.Parallel()
					o := good()
					o.NoSpans = !spans
					o.Release = newest[kind]
					w := newWorld(t, kind, nil, o)
					w.run()
					w.swap(0)
					hit := w.fakes[0].Inject(name, 2)
					for i := range 3 {
						w.whole(ask(fmt.Sprint("e", i), 20))
					}
					<-hit
				})
			}
		}
	})
}

// A server that stops sending is given up, and one that never answers.
func TestACallThatStallsGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, func(c *consumers.Config) { c.Server.StallTimeout = 3 * time.Second }, good(), good())
		w.run()
		w.swapSoon(0)
		hit := w.fakes[0].Inject("hang "+generatePath[kind], 1)
		until(t, "a call at each server", func() bool {
			w.whole(ask("a", 3))
			w.whole(ask("b", 3))
			select {
			case <-hit:
				return true
			default:
				w.Forget("a")
				w.Forget("b")
				return false
			}
		})
		w.whole(ask("c", 8))
	})
}

// A request that the server holds to be wrong is not sent again and again.
func TestARequestThatAServerRefusesIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good())
		w.run()
		w.swap(0)
		w.fakes[0].Inject("400 "+generatePath[kind], 1)
		got, err := w.generate(ask("a", 4))
		require.NoError(t, err)
		require.Equal(t, schemas.GenerateError, got.last.Stop)
		require.False(t, got.last.Retry)
		require.Contains(t, got.last.Error, "injected")
		w.whole(ask("a", 4))
	})
}

// A swap that goes wrong leaves the version before in use, or the new one: never a server that stands still, and never tokens of
// weights that they do not name.
func TestASwapThatGoesWrongIsMended(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for name, f := range map[string]struct {
			fault string
			times int
		}{
			"a pause that never returns":                 {"hang " + pausePath[kind], 1},
			"a pause that is refused":                    {"503 " + pausePath[kind], 2},
			"a pause whose answer is lost":               {"reset " + pausePath[kind], 1},
			"a load that fails":                          {"load", 1},
			"a load that fails, and the one before too":  {"load", 2},
			"a load whose files cannot be read":          {"unread", 1},
			"a load that never returns":                  {"hang " + loadPath[kind], 1},
			"a load whose answer is lost":                {"reset " + loadPath[kind], 1},
			"weights under another name":                 {"lie", 1},
			"a resume that is lost":                      {"lost", 1},
			"a resume that is refused":                   {"503 " + resumePath[kind], 3},
			"a resume that never returns":                {"hang " + resumePath[kind], 1},
			"a resume that is refused for a long time":   {"503 " + resumePath[kind], 7},
			"a look at the version that is never answer": {"hang " + map[fakeserver.Kind]string{fakeserver.VLLM: "/weight_info", fakeserver.SGLang: "/model_info"}[kind], 1},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, kind, func(c *consumers.Config) {
					c.Server.ControlTimeout, c.Server.LoadTimeout = 3*time.Second, 5*time.Second
				}, good())
				w.run()
				w.swapSoon(0)
				w.whole(ask("a", 6))
				hit := w.fakes[0].Inject(f.fault, f.times)
				w.swapSoon(1)
				got := w.whole(ask("a", 6))
				require.Equal(t, []int32{1, 1, 1, 1, 1, 1}, got.versions)
				<-hit
			})
		}
	})
}

// A version that cannot be loaded leaves the old one in use, and the error names the server and its reason.
func TestAFailedLoadKeepsTheVersionBefore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good())
		w.run()
		w.swap(0)
		w.fakes[0].Inject("load", 1)
		_, err := w.Swap(t.Context(), w.snapshot(1))
		require.ErrorContains(t, err, w.fakes[0].URL())
		require.ErrorContains(t, err, "injected")
		require.Equal(t, int64(0), w.Version())
		require.Equal(t, []int32{0, 0, 0, 0}, w.whole(ask("a", 4)).versions)

		// A folder that vanishes while it is loaded.
		gone := w.snapshot(2)
		require.NoError(t, os.Rename(gone.Dir, filepath.Join(w.dir, "away")))
		_, err = w.Swap(t.Context(), gone)
		require.ErrorContains(t, err, gone.Dir)
		require.Equal(t, []int32{0, 0, 0, 0}, w.whole(ask("a", 4)).versions)
		w.swap(3)
	})
}

// A server that is replaced by another at its address, with weights that nobody loaded, has nothing that it says used.
func TestAReplacedServerIsNoticed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for _, spans := range []bool{true, false} {
			t.Run(fmt.Sprintf("spans %t", spans), func(t *testing.T) {
				t.Parallel()
				o := good()
				o.NoSpans, o.NoLabel = !spans, !spans
				w := newWorld(t, kind, nil, o)
				w.run()
				w.swap(0)
				stop := make(chan struct{})
				var group errgroup.Group
				type served struct {
					req *schemas.GenerateRequest
					got *sampled
				}
				results := make(chan served, 4096)
				for i := range 4 {
					group.Go(func() error {
						for n := 0; ; n++ {
							select {
							case <-stop:
								return nil
							default:
							}
							req := ask(fmt.Sprintf("c%d-%d", i, n), 12)
							got, err := w.generate(req)
							if err != nil {
								return err
							}
							select {
							case results <- served{req, got}:
							default:
							}
						}
					})
				}
				<-results
				for range 3 {
					require.NoError(t, w.fakes[0].Replace(w.folder(77)))
					until(t, "the server has the version again", func() bool { return w.fakes[0].Label() != "default" })
					<-results
				}
				close(stop)
				require.NoError(t, group.Wait())
				close(results)
				n := 0
				for s := range results {
					n++
					w.check(s.req, s.got)
				}
				require.Positive(t, n)
			})
		}
	})
}

// Servers come and go while calls run.
func TestServersComeAndGo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good(), good())
		w.run()
		w.swap(0)
		stop := make(chan struct{})
		var group errgroup.Group
		for i := range 4 {
			group.Go(func() error {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return nil
					default:
					}
					got, err := w.generate(ask(fmt.Sprintf("c%d-%d", i, n), 10))
					if err != nil {
						return err
					}
					if len(got.tokens) != 10 {
						return fmt.Errorf("%d tokens: %+v", len(got.tokens), got.last)
					}
				}
			})
		}
		third := w.fake(good())
		w.Set([]string{w.fakes[1].URL(), third.URL()})
		until(t, "the new server is asked", func() bool { return third.Calls(generatePath[kind]) > 4 })
		w.swapSoon(1)
		w.Set([]string{third.URL()})
		before := w.fakes[1].Calls(generatePath[kind])
		_ = before
		w.swapSoon(2)
		w.whole(ask("after", 6))
		close(stop)
		require.NoError(t, group.Wait())
		require.Equal(t, 0, w.Load().Running)

		// With none left, calls wait for the next.
		w.Set(nil)
		done := make(chan error, 1)
		go func() {
			got, err := w.generate(ask("waits", 4))
			if err == nil && len(got.tokens) != 4 {
				err = fmt.Errorf("%+v", got.last)
			}
			done <- err
		}()
		until(t, "the call waits", func() bool { return w.Load().Waiting == 1 })
		w.Set([]string{w.fakes[0].URL()})
		require.NoError(t, <-done)
	})
}

// The calls of an episode go to one server, until its weights change.
func TestCallsOfAnEpisodeStayTogether(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good(), good(), good())
		w.run()
		w.swap(0)
		until(t, "every server has the version", func() bool {
			for _, f := range w.fakes {
				if f.Label() != w.fakes[0].Label() || f.Label() == "default" {
					return false
				}
			}
			return true
		})
		w.whole(ask("first", 2))
		count := func() (n []int) {
			for _, f := range w.fakes {
				n = append(n, f.Calls(generatePath[kind]))
			}
			return n
		}
		before := count()
		for range 6 {
			w.whole(ask("mine", 3))
		}
		after := count()
		moved := 0
		for i := range after {
			if after[i] != before[i] {
				moved++
			}
		}
		// A keeper may still look at its server by a call of its own: the episode's are six at one.
		most := 0
		for i := range after {
			most = max(most, after[i]-before[i])
		}
		require.GreaterOrEqual(t, most, 6)
		require.LessOrEqual(t, moved, 3)
	})
}

// Settings that spoil what a server samples are found before it takes a call, and named.
func TestAWrongSettingIsRefusedByName(t *testing.T) {
	t.Parallel()
	generation := func(text string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			require.NoError(t, os.WriteFile(filepath.Join(w.folder(1000), "generation_config.json"), []byte(text), 0o644))
		}
	}
	for name, f := range map[string]struct {
		kind    fakeserver.Kind
		options fakeserver.Options
		prepare func(*testing.T, *world)
		change  func(*consumers.Config)
		want    string
	}{
		"raw log-probabilities": {kind: fakeserver.VLLM, options: fakeserver.Options{NoDefaults: true}, want: "--logprobs-mode processed_logprobs"},
		"SGLang's original log-probabilities": {
			kind: fakeserver.SGLang, options: fakeserver.Options{NoDefaults: true}, want: "SGLANG_RETURN_ORIGINAL_LOGPROB",
		},
		"top_k of generation_config.json": {
			kind: fakeserver.VLLM, options: fakeserver.Options{Processed: true, NoTokenRoute: true}, prepare: generation(`{"top_k":20}`), want: "--generation-config vllm",
		},
		"top_p of generation_config.json": {
			kind: fakeserver.VLLM, options: fakeserver.Options{Processed: true, NoTokenRoute: true}, prepare: generation(`{"top_p":0.8}`), want: "--generation-config vllm",
		},
		"temperature of generation_config.json": {
			kind: fakeserver.VLLM, options: fakeserver.Options{Processed: true, NoTokenRoute: true}, prepare: generation(`{"temperature":0.6}`), want: "sampling defaults of its own",
		},
		"repetition_penalty of generation_config.json": {
			kind: fakeserver.VLLM, options: fakeserver.Options{Processed: true, NoTokenRoute: true}, prepare: generation(`{"repetition_penalty":1.5}`), want: "sampling defaults of its own",
		},
		"top_k in spite of the call": {
			kind: fakeserver.SGLang, options: fakeserver.Options{Processed: true, NoDefaults: true, TopK: 20}, want: "20 most likely tokens have all of the probability",
		},
		"no dev mode": {
			kind: fakeserver.VLLM, options: fakeserver.Options{Processed: true, NoDefaults: true, NoWeightInfo: true}, want: "VLLM_SERVER_DEV_MODE=1",
		},
		"no version": {
			kind: fakeserver.SGLang, options: fakeserver.Options{Processed: true, NoDefaults: true, NoWeightInfo: true}, want: "does not tell the version",
		},
		"a wrong key": {
			kind: fakeserver.VLLM, options: fakeserver.Options{Processed: true, NoDefaults: true, APIKey: "right"}, want: "inference.server.api_key",
			change: func(c *consumers.Config) { c.Server.APIKey = "wrong" },
		},
		// Finding Q3 of the core's second review.
		"vLLM with a --max-model-len below the episodes'": {
			kind: fakeserver.VLLM, options: good(), want: "it takes sequences of 64 tokens, and trainer.limits.max_tokens lets episodes grow to 65",
			change: func(c *consumers.Config) { c.Longest = 65 },
		},
		"SGLang with a --context-length below the episodes'": {
			kind: fakeserver.SGLang, options: good(), want: "it takes sequences of 64 tokens, and trainer.limits.max_tokens lets episodes grow to 65",
			change: func(c *consumers.Config) { c.Longest = 65 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, f.kind, nil)
			if f.prepare != nil {
				f.prepare(t, w)
			}
			fake := w.fake(f.options)
			w2 := newWorldOver(t, w, f.change, fake.URL())
			err := w2.refused()
			require.ErrorContains(t, err, fake.URL())
			require.ErrorContains(t, err, f.want)
			require.Equal(t, int64(-1), w2.Version())
		})
	}
}

// Finding Q3 of the core's second review, its variant: a server whose bound is the episodes' serves, though SGLang keeps positions of its bound.
func TestAServerWithTheEpisodesBoundServes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, func(c *consumers.Config) { c.Longest = 64 }, good())
		w.run()
		w.swap(0)
		w.whole(ask("a", 8))
		got, err := w.generate(ask("b", 61))
		require.NoError(t, err)
		require.Equal(t, schemas.GenerateLength, got.last.Stop, "%+v", got.last)
		require.GreaterOrEqual(t, len(got.tokens), 61-reserved[kind])
	})
}

// A server of another vocabulary, or another model's folder, is refused before its weights are touched.
func TestAnotherModelIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good())
		other := w.snapshot(0)
		other.Config.VocabSize += 6
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		_, err := w.Swap(t.Context(), other)
		require.Error(t, err)
		require.ErrorContains(t, <-ended, "it serves another model")

		// Where the folder cannot be read here, the probe tells.
		w = newWorld(t, kind, nil, good())
		require.NoError(t, os.Remove(filepath.Join(w.folder(1000), "config.json")))
		go func() { ended <- w.Run(ctx) }()
		_, err = w.Swap(t.Context(), other)
		require.Error(t, err)
		require.ErrorContains(t, <-ended, "the server has another model")
		require.Equal(t, "default", w.fakes[0].Label())
	})
}

// refused runs the Pool, which must end by itself.
func (w *world) refused() error {
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	go func() { ended <- w.Run(ctx) }()
	_, err := w.Swap(ctx, w.snapshot(0))
	if err == nil {
		cancel()
		return errors.Join(errors.New("the server was taken"), <-ended)
	}
	return <-ended
}
