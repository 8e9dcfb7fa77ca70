package servers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
	"github.com/weir-rl/weir/schemas"
)

// shelf has the bytes of every version, as the broker does.
type shelf struct{ t *testing.T }

func (s shelf) Load(_ context.Context, m *schemas.Manifest) ([][]byte, error) {
	return [][]byte{s.version(m.Version)}, nil
}

func (s shelf) version(n int64) []byte {
	s.t.Helper()
	data, err := safetensors.Encode(fakemodel.Weights(s.t, n), safetensors.F32)
	require.NoError(s.t, err)
	return data
}

func (s shelf) manifest(n int64) *schemas.Manifest {
	s.t.Helper()
	data := s.version(n)
	config, err := json.Marshal(fakemodel.Config())
	require.NoError(s.t, err)
	hash := schemas.ContentHash(data)
	return &schemas.Manifest{
		Run: "test", Version: n, Base: schemas.NoBase, DType: "float32", Config: config, ConfigHash: schemas.ContentHash(config),
		TokenizerHash: schemas.ContentHash(nil),
		Shards:        []schemas.Shard{{Hash: hash, FullHash: hash, Size: int64(len(data)), Encoding: schemas.EncodingSafetensors}},
	}
}

// followed is a world whose versions land in a Folder, as a follower has them land.
type followed struct {
	*world
	folder *consumers.Folder
}

func follow(w *world) *followed {
	w.t.Helper()
	folder, err := consumers.OpenFolder(filepath.Join(w.t.TempDir(), "weights"), func(dir string, c gpu.Config, dtype gpu.DType) error {
		_, err := hf.WriteConfig(dir, c, dtype)
		return err
	})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, folder.Close()) })
	return &followed{w, folder}
}

// take has a version come into use.
func (f *followed) take(version int64) {
	f.t.Helper()
	from := shelf{f.t}
	s, err := f.folder.Land(f.t.Context(), from, from.manifest(version), "")
	require.NoError(f.t, err)
	until(f.t, fmt.Sprintf("version %d in use", version), func() bool {
		_, err := f.Swap(f.t.Context(), s)
		return err == nil
	})
	require.NoError(f.t, f.folder.Tidy())
}

// versions are the folders that are there, in the order of their names.
func (f *followed) versions() (out []string) {
	f.t.Helper()
	folders, err := filepath.Glob(filepath.Join(f.folder.Dir(), "v*"))
	require.NoError(f.t, err)
	for _, name := range folders {
		out = append(out, filepath.Base(name))
	}
	return out
}

// Finding Q4 of the core's second review: one of two servers is started anew, and comes to read its weights when the other has taken
// three newer versions. What it was started with is there as long as it needs it, and no longer.
func TestAServerThatStartsSlowerThanTwoVersionsComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fake := filepath.Join(dir, "fake")
	out, err := exec.Command("go", "build", "-o", fake, "github.com/weir-rl/weir/internal/fakeserver/fake").CombinedOutput()
	require.NoError(t, err, "%s", out)
	slow := filepath.Join(dir, "slow")
	script := fmt.Sprintf(`echo $$ >> %s/pids.$CUDA_VISIBLE_DEVICES; while test -e %s; do sleep 0.05; done; exec %s vllm serve "$@"`, dir, slow, fake)
	f := follow(newWorld(t, fakeserver.VLLM, func(c *consumers.Config) {
		c.Server.Command = []string{"sh", "-c", script, "sh"}
		c.Server.Devices = []string{"0", "1"}
		c.MaxTokens = 40
	}))
	f.run()
	f.take(0)
	serving := func(n int) func() bool {
		return func() bool {
			data, _ := os.ReadFile(filepath.Join(f.dir, "vllm-0.log"))
			return strings.Count(string(data), "serving on") == n
		}
	}
	starts := func() []string {
		data, err := os.ReadFile(filepath.Join(dir, "pids.0"))
		require.NoError(t, err)
		return strings.Fields(string(data))
	}
	until(t, "server 0 serves", serving(1))
	require.NoError(t, os.WriteFile(slow, nil, 0o644))
	pid, err := strconv.Atoi(starts()[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	until(t, "server 0 is started again", func() bool { return len(starts()) == 2 })
	for version := range int64(3) {
		f.take(version + 1)
	}
	require.Equal(t, []string{"v0", "v2", "v3"}, f.versions())
	require.NoError(t, os.Remove(slow))
	until(t, "server 0 serves again", serving(2))
	until(t, "its folder goes", func() bool { return len(f.versions()) == 2 })
	require.Len(t, starts(), 2)
}

// Findings Q4 and Q11 of the core's second review: a server that loads for as long as three versions last keeps the folder, until it
// is taken out of the list; its keeper then ends at once, before another one of the same server begins.
func TestAServerThatIsTakenOutLetsItsFolderGo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		f := follow(newWorld(t, kind, nil, good(), good()))
		f.run()
		f.take(0)
		until(t, "both serve", func() bool { return testutil.ToFloat64(f.metrics.ForServers().Fit) == 2 })
		hangs := f.fakes[0].Inject("hang "+loadPath[kind], 1)
		f.take(1)
		<-hangs
		for version := range int64(3) {
			f.take(version + 2)
		}
		require.Equal(t, []string{"v0", "v1", "v3", "v4"}, f.versions(), "what it had, and what it loads")
		f.Set([]string{f.fakes[1].URL()})
		f.Set([]string{f.fakes[0].URL(), f.fakes[1].URL()})
		until(t, "its folders go", func() bool { return len(f.versions()) == 2 })
		f.Set([]string{f.fakes[0].URL()})
		f.whole(ask("c", 4))
	})
}

// Finding Q4 of the core's second review, its variant: a server that cannot load a newer version goes on with its last version, whose
// folder stays between the attempts too, since a failed load goes back to it.
func TestWhatAServerHasStaysWhileItServesWithIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		f := follow(newWorld(t, kind, nil, good(), good()))
		f.run()
		f.take(0)
		until(t, "both serve", func() bool { return testutil.ToFloat64(f.metrics.ForServers().Fit) == 2 })
		f.fakes[0].Inject("503 "+pausePath[kind], math.MaxInt32)
		for version := range int64(4) {
			before := f.fakes[0].Calls(pausePath[kind])
			f.take(version + 1)
			until(t, "another attempt", func() bool { return f.fakes[0].Calls(pausePath[kind]) > before })
		}
		require.Equal(t, []string{"v0", "v3", "v4"}, f.versions())
		require.InDelta(t, 2, testutil.ToFloat64(f.metrics.ForServers().Fit), 0)
	})
}

// A trainer that went back to an older checkpoint publishes a version again, with other weights: every server loads them.
func TestAVersionWithOtherWeightsIsLoaded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good())
		w.run()
		w.swap(1)
		again := w.snapshot(2)
		again.Version = 1
		_, err := w.Swap(t.Context(), again)
		require.NoError(t, err)
		req := ask("a", 5)
		got, err := w.generate(req)
		require.NoError(t, err)
		tokens := append(append([]int32(nil), req.Tokens...), got.tokens...)
		want := w.oracle.Logprobs(2, tokens, len(req.Tokens), req.Temperature)
		require.InDeltaSlice(t, want, got.logprobs, 1e-3)
		require.Equal(t, []int32{1, 1, 1, 1, 1}, got.versions)
	})
}
