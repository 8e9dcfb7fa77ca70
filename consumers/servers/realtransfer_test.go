package servers_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/vllm"
	"github.com/weir-rl/weir/internal/realpython"
)

// pluginOf is a folder with the plugin of a kind.
func pluginOf(t *testing.T, kind servers.Plugged) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, servers.WritePlugin(dir, kind.Plugin()))
	return dir
}

// director drives a server by hand.
type director struct {
	t       *testing.T
	speaker servers.Speaker
	staging servers.Transferrer
	n       int
}

func newDirector(t *testing.T, kind servers.Kind, url string) *director {
	t.Helper()
	remote := servers.NewRemote(url, "", "")
	t.Cleanup(remote.Close)
	speaker := kind.Speak(remote)
	_, err := speaker.Model(t.Context())
	require.NoError(t, err)
	return &director{t: t, speaker: speaker, staging: speaker.(servers.Transferrer)} //nolint:forcetypeassert // of both kinds
}

// likely are the most likely tokens after some contexts, whose log-probabilities are computed anew.
func (d *director) likely() (out [][]servers.Likely) {
	d.t.Helper()
	for _, tokens := range [][]int32{{0}, {1, 2, 3}, {5, 4, 3, 2, 1, 0}, {20, 21, 22, 23, 24, 25, 26, 27}} {
		d.n++
		id := fmt.Sprint("d", d.n)
		a, err := d.speaker.Generate(d.t.Context(), &servers.Query{ID: id, Salt: id, Tokens: tokens, MaxTokens: 1, Temperature: 1, Top: servers.Alternatives}, func() {})
		require.NoError(d.t, err)
		require.Len(d.t, a.Likely, 1)
		require.GreaterOrEqual(d.t, len(a.Likely[0]), servers.Alternatives)
		out = append(out, a.Likely[0][:servers.Alternatives-1]) // the last may be the sampled token
	}
	return out
}

// files are those of a version's folder.
func stagedFiles(t *testing.T, dir string) (out []servers.StagedFile) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	require.NoError(t, err)
	for _, path := range paths {
		info, err := os.Stat(path)
		require.NoError(t, err)
		out = append(out, servers.StagedFile{
			Name: filepath.Base(path), Size: info.Size(), Modified: info.ModTime().UnixNano(), Inode: info.Sys().(*syscall.Stat_t).Ino, //nolint:forcetypeassert // of Unix
		})
	}
	return out
}

// stage stages a version, and returns why the server does not take it.
func (d *director) stage(label, dir string, files []servers.StagedFile) (err error) {
	d.t.Helper()
	until(d.t, "staged", func() bool {
		var done bool
		done, err = d.staging.Stage(d.t.Context(), label, dir, files)
		return done || err != nil
	})
	return err
}

// paused does something in a pause.
func (d *director) paused(do func()) {
	d.t.Helper()
	require.NoError(d.t, d.speaker.Pause(d.t.Context(), servers.Keep))
	do()
	require.NoError(d.t, d.speaker.Resume(d.t.Context()))
}

// sameAsFolders has ten versions loaded through shared memory, each of which is to the bit what its folder is.
func (d *director) sameAsFolders(t *testing.T, first *world) {
	t.Helper()
	t.Run("the same as a folder's, to the bit", func(t *testing.T) {
		d.t = t
		require.NoError(t, d.staging.BeginTransfers(t.Context()))
		var before [][]servers.Likely
		for v := range int64(10) {
			dir := first.folder(v)
			label := fmt.Sprint("memory-", v)
			require.NoError(t, d.stage(label, dir, stagedFiles(t, dir)))
			d.paused(func() { require.NoError(t, d.staging.LoadStaged(t.Context(), dir, label, servers.Keep)) })
			has, err := d.speaker.Label(t.Context())
			require.NoError(t, err)
			require.Equal(t, label, has)
			memory := d.likely()
			require.NotEqual(t, before, memory, "the version before")
			// Another version between, so that a load of nothing is seen.
			d.paused(func() { require.NoError(t, d.speaker.Load(t.Context(), first.folder(1000), "between", servers.Keep)) })
			require.NotEqual(t, memory, d.likely())
			d.paused(func() { require.NoError(t, d.speaker.Load(t.Context(), dir, "folder", servers.Keep)) })
			require.Equal(t, memory, d.likely(), "version %d", v)
			before = memory
		}
	})
}

// refusesWhatItCannotTake has versions refused by their reasons, with weights and label as they were.
func (d *director) refusesWhatItCannotTake(t *testing.T, first *world) {
	t.Helper()
	t.Run("what cannot be taken", func(t *testing.T) {
		d.t = t
		was := d.likely()
		before, err := d.speaker.Label(t.Context())
		require.NoError(t, err)
		good, other := first.folder(3), filepath.Join(memoryDir(t), "other")
		data, err := os.ReadFile(filepath.Join(good, "model.safetensors"))
		require.NoError(t, err)
		for _, c := range []struct {
			name, why string
			data      []byte
			change    func(f *servers.StagedFile)
		}{
			{"another file of that name", "not the file that Weir wrote", data, func(f *servers.StagedFile) { f.Modified++ }},
			{"a file that was cut", "is cut", data[:len(data)-100], nil},
			{"a header that was cut", "is cut", data[:50], nil},
			{"an empty file", "cannot mmap an empty file", nil, nil},
			{"a shape of another model", "has shape [16, 29] where the model's has [29, 16]", replaceIn(data, "[29,16]", "[16,29]"), nil},
			{"a tensor of another name", "model.norm.weight is missing", replaceIn(data, "model.norm.weight", "model.norn.weight"), nil},
			{"numbers of another type", "numbers of type I32", replaceIn(data, `"F32"`, `"I32"`), nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				d.t = t
				require.NoError(t, os.RemoveAll(other))
				require.NoError(t, os.Mkdir(other, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(other, "model.safetensors"), c.data, 0o644))
				files := stagedFiles(t, other)
				if c.change != nil {
					c.change(&files[0])
				}
				err := d.stage("wrong", other, files)
				require.ErrorContains(t, err, c.why)
				t.Log(err)
				d.paused(func() { require.Error(t, d.staging.LoadStaged(t.Context(), other, "wrong", servers.Keep)) })
				require.Equal(t, was, d.likely())
				label, err := d.speaker.Label(t.Context())
				require.NoError(t, err)
				require.Equal(t, before, label)
			})
		}
	})
}

// halfPlugin is the plugin with loads that fail half way, in the middle of a layer, under the label half.
const halfPlugin = `
import weir_vllm

class Half(list):
    def __iter__(self):
        for i, (name, tensor) in enumerate(list.__iter__(self)):
            if "layers.1" in name and "k_proj" in name:
                raise RuntimeError("injected")
            yield name, tensor

class Transfer(weir_vllm.Transfer):
    def weir_load(self, label):
        if label == "half":
            staged = self.weir_stages().staged
            staged.thread.join()
            staged.tensors = Half(staged.tensors)
        return weir_vllm.Transfer.weir_load(self, label)
`

// A published vLLM with the plugin takes versions through shared memory: its log-probabilities are to the bit those after a load of the same
// folder. A version that it cannot take is refused by its reason, and leaves weights and label as they were.
func TestAPublishedVLLMTakesVersionsThroughSharedMemory(t *testing.T) {
	program := realpython.VLLM(t)
	setRealEnv(t)
	first := newRealWorld(t, program, "", nil)
	first.dir, first.folders = memoryDir(t), map[int64]string{}
	plugin := pluginOf(t, vllm.Kind{})
	require.NoError(t, os.WriteFile(filepath.Join(plugin, "half.py"), []byte(halfPlugin), 0o644))
	t.Setenv("PYTHONPATH", plugin)
	url := startReal(t, program, first.folder(1000), "--worker-extension-cls", "half.Transfer")
	d := newDirector(t, vllm.Kind{}, url)

	d.sameAsFolders(t, first)
	d.refusesWhatItCannotTake(t, first)
	t.Run("a load that fails half way", func(t *testing.T) {
		d.t = t
		whole := map[int64][][]servers.Likely{}
		for v := range int64(2) {
			d.paused(func() { require.NoError(t, d.speaker.Load(t.Context(), first.folder(v), "before", servers.Keep)) })
			whole[v] = d.likely()
		}
		require.NoError(t, d.stage("half", first.folder(2), stagedFiles(t, first.folder(2))))
		d.paused(func() {
			require.ErrorContains(t, d.staging.LoadStaged(t.Context(), first.folder(2), "half", servers.Keep), "injected")
			label, err := d.speaker.Label(t.Context())
			require.NoError(t, err)
			require.Equal(t, "before", label)
			require.NoError(t, d.speaker.Load(t.Context(), first.folder(0), "after", servers.Keep))
		})
		require.Equal(t, whole[0], d.likely())
		// Without the plugin a load that fails half way is the last of this vLLM.
		data, err := os.ReadFile(filepath.Join(first.folder(2), "model.safetensors"))
		require.NoError(t, err)
		broken := filepath.Join(memoryDir(t), "broken")
		require.NoError(t, os.CopyFS(broken, os.DirFS(first.folder(2))))
		require.NoError(t, os.WriteFile(filepath.Join(broken, "model.safetensors"), replaceIn(data, "[24,16]", "[16,24]"), 0o644))
		d.paused(func() {
			require.Error(t, d.speaker.Load(t.Context(), broken, "broken", servers.Keep))
			require.NoError(t, d.staging.BeginTransfers(t.Context()))
			require.NoError(t, d.speaker.Load(t.Context(), first.folder(0), "mended", servers.Keep))
		})
		require.Equal(t, whole[0], d.likely())
		require.NoError(t, d.stage("next", first.folder(1), stagedFiles(t, first.folder(1))))
		d.paused(func() { require.NoError(t, d.staging.LoadStaged(t.Context(), first.folder(1), "next", servers.Keep)) })
		require.Equal(t, whole[1], d.likely())
	})
	for _, mode := range []consumers.SwapMode{consumers.SwapKeep, consumers.SwapRecompute} {
		t.Run("versions while it generates, "+string(mode), func(t *testing.T) {
			w := newRealWorld(t, program, url, func(c *consumers.Config) { c.Swap = mode })
			w.dir, w.folders = memoryDir(t), map[int64]string{}
			w.takeVersions(10)
			require.Equal(t, 11, w.loads("memory", ""))
		})
	}
}

// replaceIn is a safetensors file with words of its header replaced, two by two, by others of the same length.
func replaceIn(data []byte, words ...string) []byte {
	end := 8 + binary.LittleEndian.Uint64(data)
	return append([]byte(nil), append(append(append([]byte(nil), data[:8]...), strings.NewReplacer(words...).Replace(string(data[8:end]))...), data[end:]...)...)
}

// A published vLLM that Weir started is killed while a version is staged or loaded: the version serves from the process that takes its place,
// which has the plugin again.
func TestAPublishedVLLMIsKilledInATransfer(t *testing.T) {
	program := realpython.VLLM(t)
	setRealEnv(t)
	w := newRealWorld(t, program, "", nil)
	w.dir, w.folders = memoryDir(t), map[int64]string{}
	var started lines
	w.Pool = servers.New(w.cfg, vllm.Kind{}, servers.Options{Metrics: w.metrics, Log: slog.New(slog.NewTextHandler(&started, nil))})
	w.killInATransfer(&started)
}

// takeVersions has the servers take so many versions while they generate, each whole and none by a load that failed.
func (w *world) takeVersions(n int64) {
	w.t.Helper()
	w.run()
	w.swapSoon(0)
	w.swapWhileGenerating(n)
	w.whole(ask("after", 30))
	require.InDelta(w.t, 0, w.checks("stale"), 0)
	require.InDelta(w.t, 0, testutil.ToFloat64(w.metrics.ForServers().Failed), 0)
}

// killInATransfer has the Pool's own servers be killed while they take a version: that version and the next are served from shared memory.
func (w *world) killInATransfer(log *lines) {
	t := w.t
	t.Helper()
	w.run()
	w.swap(0)
	w.swap(1)
	require.Equal(t, 1, w.loads("memory", ""))
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := w.Swap(ctx, w.snapshot(2))
		done <- err
	}()
	for _, pid := range serversOf(t, w.dir) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	require.NoError(t, <-done)
	w.whole(ask("a", 30))
	w.swap(3)
	w.whole(ask("b", 30))
	require.GreaterOrEqual(t, w.loads("memory", ""), 2)
	require.Empty(t, log.with("is started without"))
}
