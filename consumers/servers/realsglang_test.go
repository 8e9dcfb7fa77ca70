package servers_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/sglang"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
	"github.com/weir-rl/weir/internal/realpython"
)

// sglangArgs are what an SGLang on a processor is started with beside Weir's own arguments: PyTorch's own kernels, and no tokenizer, which
// the folders of these tests do not have.
var sglangArgs = []string{
	"--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
	"--grammar-backend", "none", "--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled", "--skip-tokenizer-init", "--skip-server-warmup",
	"--max-total-tokens", "4096", "--mem-fraction-static", "0.1", "--page-size", "16",
}

// startSGLang starts an SGLang with the plugin in a folder, and returns its URL when it is healthy. The test ends it.
func startSGLang(t *testing.T, python, dir, plugin string) string {
	t.Helper()
	port := freePort(t)
	args, env := sglang.Kind{}.Command(servers.Start{
		Command: []string{python, "-m", "sglang.launch_server"}, Args: sglangArgs, Dir: dir, Port: port,
		MaxTokens: fakemodel.Config().MaxPositions, Slots: 16, Plugin: plugin,
	})
	return startServer(t, args, env, port)
}

// newSGLangWorld is a Pool over a running SGLang, or over one that it starts where url is "". Its versions lie in shared memory.
func newSGLangWorld(t *testing.T, python, url string, change func(*consumers.Config)) *world {
	t.Helper()
	w := newWorld(t, fakeserver.SGLang, func(c *consumers.Config) {
		c.Server.CheckEvery, c.Server.VerifyEvery = 500*time.Millisecond, 1
		if url == "" {
			c.Server.Command, c.Server.Args, c.Server.Count = []string{python, "-m", "sglang.launch_server"}, slices.Clone(sglangArgs), 1
			c.MaxTokens = fakemodel.Config().MaxPositions
		} else {
			c.Servers = []string{url}
		}
		if change != nil {
			change(c)
		}
	})
	w.dir, w.folders = memoryDir(t), map[int64]string{}
	return w
}

// halfSGLang has the plugin's loads fail in the middle of a layer, under labels that begin with half.
const halfSGLang = `
class Half(list):
    def __iter__(self):
        for name, tensor in list.__iter__(self):
            if "layers.1" in name and "k_proj" in name:
                raise RuntimeError("injected")
            yield name, tensor

def take_half(self, label, take=Stages.take):
    staged = take(self, label)
    if label.startswith("half"):
        staged.tensors = Half(staged.tensors)
    return staged

Stages.take = take_half
`

// A published SGLang on a processor, driven as a run drives it: versions through shared memory, which are to the bit those of their folders,
// what it cannot take, loads that fail half way, the probe, log-probabilities, ends, ten versions while it generates in each mode of a swap.
func TestAPublishedSGLangServesARun(t *testing.T) {
	python := realpython.SGLang(t)
	setRealEnv(t)
	plugin := pluginOf(t, sglang.Kind{})
	module := filepath.Join(plugin, "weir_sglang.py")
	source, err := os.ReadFile(module)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(module, append(source, halfSGLang...), 0o644))
	first := newSGLangWorld(t, python, "http://127.0.0.1:1", nil) // for its folders alone
	url := startSGLang(t, python, first.folder(1000), plugin)

	d := newDirector(t, sglang.Kind{}, url)
	d.sameAsFolders(t, first)
	d.refusesWhatItCannotTake(t, first)
	t.Run("a load that fails half way", func(t *testing.T) {
		d.t = t
		d.paused(func() { require.NoError(t, d.speaker.Load(t.Context(), first.folder(0), "before", servers.Keep)) })
		whole := d.likely()
		for _, gone := range []bool{false, true} {
			// Where the folder is gone, what SGLang does after a failed load fails too, which ends a server without the plugin.
			label, dir := fmt.Sprint("half-", gone), filepath.Join(memoryDir(t), "version")
			require.NoError(t, os.CopyFS(dir, os.DirFS(first.folder(2))))
			require.NoError(t, d.stage(label, dir, stagedFiles(t, dir)))
			if gone {
				require.NoError(t, os.RemoveAll(dir))
			}
			d.paused(func() {
				err := d.staging.LoadStaged(t.Context(), dir, label, servers.Keep)
				require.Error(t, err)
				t.Log(err)
				if !gone {
					require.ErrorContains(t, err, "injected")
				}
				label, err := d.speaker.Label(t.Context())
				require.NoError(t, err)
				require.Equal(t, "before", label)
				require.NoError(t, d.speaker.Load(t.Context(), first.folder(0), "before", servers.Keep))
			})
			require.Equal(t, whole, d.likely())
		}
		require.NoError(t, d.stage("next", first.folder(1), stagedFiles(t, first.folder(1))))
		d.paused(func() { require.NoError(t, d.staging.LoadStaged(t.Context(), first.folder(1), "next", servers.Keep)) })
		require.NotEqual(t, whole, d.likely())
	})
	servesAsTheModel(t, func(t *testing.T, change func(*consumers.Config)) *world {
		t.Helper()
		return newSGLangWorld(t, python, url, change)
	})
	for _, mode := range []consumers.SwapMode{consumers.SwapKeep, consumers.SwapRecompute, consumers.SwapDrain} {
		t.Run("versions while it generates, "+string(mode), func(t *testing.T) {
			w := newSGLangWorld(t, python, url, func(c *consumers.Config) { c.Swap = mode })
			w.takeVersions(10)
			require.Equal(t, 11, w.loads("memory", ""))
		})
	}
}

// A published SGLang that Weir started is killed while a version is staged or loaded: the version serves from the process that takes its
// place, which has the plugin again.
func TestAPublishedSGLangIsKilledInATransfer(t *testing.T) {
	python := realpython.SGLang(t)
	setRealEnv(t)
	w := newSGLangWorld(t, python, "", nil)
	var started lines
	w.Pool = servers.New(w.cfg, sglang.Kind{}, servers.Options{Metrics: w.metrics, Log: slog.New(slog.NewTextHandler(&started, nil))})
	w.killInATransfer(&started)
}
