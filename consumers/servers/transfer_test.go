package servers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/schemas"
)

// memoryDir is a folder in shared memory that goes with the test.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "weir-test-") //nolint:usetesting // in shared memory
	if err != nil {
		t.Skipf("no shared memory: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// newMemoryWorld is a newWorld whose versions lie in shared memory.
func newMemoryWorld(t *testing.T, kind fakeserver.Kind, change func(*consumers.Config), options ...fakeserver.Options) *world {
	t.Helper()
	dir := memoryDir(t)
	w := newWorld(t, kind, change, options...)
	w.dir, w.folders = dir, map[int64]string{}
	return w
}

// loads counts the versions that were loaded from a place for a reason.
func (w *world) loads(from, reason string) int {
	return int(testutil.ToFloat64(w.metrics.ForServers().Loads.WithLabelValues(from, reason)))
}

// plugged is a server with the plugin.
func plugged(kind fakeserver.Kind) fakeserver.Options {
	o := good()
	o.Release, o.Plugin = newest[kind], true
	return o
}

// Each version reaches a server with the plugin through shared memory, and its answers are the version's. A server without takes the same
// versions from their folders.
func TestVersionsReachAServerThroughSharedMemory(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newMemoryWorld(t, kind, nil, plugged(kind))
		w.run()
		for v := range int64(10) {
			w.swapSoon(v)
			w.whole(ask(fmt.Sprint("e", v), 20))
		}
		require.Equal(t, 10, w.loads("memory", ""))
		require.Zero(t, w.checks("stale"))

		plain := newMemoryWorld(t, kind, nil, good())
		plain.run()
		plain.swapSoon(0)
		plain.whole(ask("e", 20))
		require.Equal(t, 1, plain.loads("folder", "plugin"))
	})
}

// A server that does not answer whether it has the plugin, as while it starts, is asked again: any status was taken for a missing plugin,
// and every version loaded from its folder. Where it never answers, versions come from folders, and it is asked again before the next.
func TestAServerThatDoesNotAnswerWhetherItHasThePluginIsAskedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for busy, fromFolders := range map[int]int{2: 0, 6: 1} {
			w := newMemoryWorld(t, kind, nil, plugged(kind))
			w.fakes[0].Inject("busy", busy)
			w.run()
			w.swapSoon(0)
			w.swapSoon(1)
			w.whole(ask("e", 20))
			require.Equal(t, fromFolders, w.loads("folder", "plugin"), "%d", busy)
			require.Equal(t, 2-fromFolders, w.loads("memory", ""), "%d", busy)
		}
	})
}

// Where a transfer cannot be made, or fails at any place, the version is loaded from its folder, and the reason is counted by its name. No call is
// answered with weights of two versions.
func TestInvariantATransferThatFailsEndsInAWholeVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, fault  string
		times        int
		from, reason string
	}{
		{"a load fails half way", "half", 1, "folder", "load"},
		{"the version cannot be taken", "unstaged", 1, "folder", "stage"},
		{"the server is slow to stage", "slow", 3, "memory", ""},
		{"a load is reported and nothing is loaded", "stale", 1, "", ""},
		{"another label is set", "lie", 1, "folder", "load"},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, kind fakeserver.Kind) {
				w := newMemoryWorld(t, kind, func(c *consumers.Config) { c.Server.VerifyEvery = 1 }, plugged(kind))
				w.run()
				w.swapSoon(0)
				w.swapSoon(1)
				w.fakes[0].Inject(c.fault, c.times)
				w.swapSoon(2)
				for i := range 5 {
					w.whole(ask(fmt.Sprint("e", i), 20))
				}
				if c.from != "" {
					require.Equal(t, map[bool]int{true: 1, false: 3}[c.from == "folder"], w.loads(c.from, c.reason))
				}
				w.swapSoon(3)
				w.whole(ask("after", 20))
			})
		})
	}
}

// A server whose model is quantized, a version that does not lie in shared memory, and inference.server.transfer off are no faults: the folder is
// loaded.
func TestATransferIsNotTriedWhereItCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		world  func(t *testing.T, kind fakeserver.Kind) *world
	}{
		{"plugin", func(t *testing.T, kind fakeserver.Kind) *world {
			t.Helper()
			w := newMemoryWorld(t, kind, nil, plugged(kind))
			w.fakes[0].Inject("quantized", 1)
			return w
		}},
		{"place", func(t *testing.T, kind fakeserver.Kind) *world {
			t.Helper()
			w := newWorld(t, kind, nil, plugged(kind))
			if strings.HasPrefix(os.TempDir(), "/dev/shm") {
				t.Skip("temporary files lie in shared memory")
			}
			return w
		}},
		{"off", func(t *testing.T, kind fakeserver.Kind) *world {
			t.Helper()
			return newMemoryWorld(t, kind, func(c *consumers.Config) { c.Server.Transfer = consumers.TransferOff }, plugged(kind))
		}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			each(t, func(t *testing.T, kind fakeserver.Kind) {
				w := c.world(t, kind)
				w.run()
				w.swapSoon(0)
				w.swapSoon(1)
				w.whole(ask("e", 20))
				require.Equal(t, 2, w.loads("folder", c.reason))
				require.Zero(t, w.loads("memory", ""))
			})
		})
	}
}

// Two Weirs with one server: the stage of the second takes the place of the first's, and neither is served with the other's weights under its own
// label.
func TestTwoWeirsWithOneServerTransferTheirOwn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		a := newMemoryWorld(t, kind, nil, plugged(kind))
		c := newWorldOver(t, a, nil, a.fakes[0].URL())
		c.dir, c.folders = memoryDir(t), map[int64]string{}
		a.run()
		a.swapSoon(0)
		a.whole(ask("a", 10))
		c.run()
		c.swapSoon(5)
		c.whole(ask("c", 10)) // checked against version 5 of its own
		a.swapSoon(1)
		a.whole(ask("a2", 10))
	})
}

// Under keep, an SGLang without the plugin names a token of each call that goes on by the next weights: all of 40 such answers of a published
// SGLang did. Its calls are cut, and go on after their tokens; with the plugin they are kept.
func TestAnSGLangKeepsItsCallsWithThePluginAlone(t *testing.T) {
	t.Parallel()
	for _, has := range []bool{false, true} {
		o := plugged(fakeserver.SGLang)
		o.Plugin, o.Pace = has, 40*time.Millisecond
		w := newMemoryWorld(t, fakeserver.SGLang, nil, o)
		w.run()
		w.swapSoon(0)
		samples, done := make(chan struct{}), make(chan int, 1)
		go func() {
			tokens := 0
			_ = w.Generate(t.Context(), ask("a", 40), func(c *schemas.GenerateChunk) error {
				if tokens == 0 {
					close(samples)
				}
				tokens += len(c.Tokens)
				return nil
			})
			done <- tokens
		}()
		<-samples
		w.swapSoon(1)
		require.Equal(t, 40, <-done)
		require.Equal(t, !has, testutil.ToFloat64(w.metrics.ForServers().Cut) > 0)
	}
}

// pluggedCommand is a program of the name of a kind that is its newest release, with lines of a shell before.
func pluggedCommand(t *testing.T, kind fakeserver.Kind, lines string) []string {
	t.Helper()
	program := filepath.Join(t.TempDir(), string(kind))
	script := fmt.Sprintf("#!/bin/sh\n%sexec %s %s --release %s \"$@\"\n", lines, buildFake(t), kind, newest[kind])
	require.NoError(t, os.WriteFile(program, []byte(script), 0o755))
	if kind == fakeserver.VLLM {
		return []string{program, "serve"}
	}
	return []string{program}
}

// A start with the plugin that fails, as where the server's Python cannot import it, is followed by a start without.
func TestAStartThatFailsWithThePluginIsMadeWithout(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		seen := filepath.Join(t.TempDir(), "arguments")
		command := pluggedCommand(t, kind, fmt.Sprintf("echo \"$PYTHONPATH $@\" >> %s\ncase \"$PYTHONPATH\" in */plugin*) exit 1;; esac\n", seen))
		w := newWorld(t, kind, func(c *consumers.Config) { c.Server.Command, c.Server.Count = command, 1 })
		w.run()
		w.swapSoon(0)
		w.whole(ask("a", 4))
		text, err := os.ReadFile(seen)
		require.NoError(t, err)
		plugin := filepath.Join(w.cfg.Server.Dir, "plugin")
		require.Contains(t, string(text), plugin)
		if kind == fakeserver.VLLM {
			require.Contains(t, string(text), "--worker-extension-cls weir_vllm.Transfer")
		}
		_, err = os.Stat(filepath.Join(plugin, "weir_"+string(kind)+".py"))
		require.NoError(t, err)
	})
}

// A server of Weir's own has the plugin where its command is the server's, and takes versions through shared memory.
func TestAStartedServerHasThePlugin(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		command := pluggedCommand(t, kind, "")
		w := newMemoryWorld(t, kind, func(c *consumers.Config) { c.Server.Command, c.Server.Count = command, 1 })
		w.run()
		w.swapSoon(0) // the process is started with it
		w.swapSoon(1)
		w.whole(ask("a", 4))
		require.Equal(t, 1, w.loads("memory", ""))
		require.Zero(t, w.loads("folder", "plugin"))
	})
}
