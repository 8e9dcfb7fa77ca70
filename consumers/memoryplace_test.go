package consumers_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
)

const memoryBase = "/dev/shm"

// openInMemory is a Folder whose versions land in memory, as long as full is false; full may be nil.
func openInMemory(t testing.TB, dir string, full *bool) *consumers.Folder {
	f, err := consumers.OpenFolder(dir, func(dir string, c gpu.Config, dtype gpu.DType) error {
		if full != nil && *full && strings.HasPrefix(dir, memoryBase) {
			return &fs.PathError{Op: "write", Path: dir, Err: syscall.ENOSPC}
		}
		return beside(dir, c, dtype)
	})
	require.NoError(t, err)
	if err := f.UseMemory(1<<20, nil); err != nil {
		require.NoError(t, f.Close())
		t.Skipf("no shared memory: %v", err)
	}
	return f
}

// requireVersion checks that a folder has a version whole.
func requireVersion(t require.TestingT, tb testing.TB, dir string, version int64) {
	m, err := hf.Load(dir)
	require.NoError(t, err)
	require.Equal(t, fakemodel.Weights(tb, version).Tensors[0].Data, m.Weights.Tensors[0].Data)
}

// Invariant: a version lands whole, in memory or on disk, however little room is in memory. What is asked for on disk is there, once, and all goes
// with its version.
func TestInvariantAVersionLandsWholeInMemoryOrOnDisk(t *testing.T) {
	t.Parallel()
	from := &shelf{data: map[string][]byte{}}
	home := t.TempDir()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		full := false
		dir := filepath.Join(home, fmt.Sprint(n))
		f := openInMemory(t, dir, &full)
		var places []string
		for version := range int64(6) {
			full = rapid.Bool().Draw(r, "full")
			s, err := f.Land(t.Context(), from, from.publish(t, version), "")
			require.NoError(r, err)
			require.Equal(r, full, strings.HasPrefix(s.Dir, home), s.Dir)
			requireVersion(r, t, s.Dir, version)
			places = append(places, s.Dir)
			release, there := s.Hold()
			require.True(r, there)
			if rapid.Bool().Draw(r, "on disk") {
				one, err := s.OnDisk()
				require.NoError(r, err)
				again, err := s.OnDisk()
				require.NoError(r, err)
				require.Equal(r, one, again)
				require.Equal(r, filepath.Join(dir, fmt.Sprintf("v%d", version)), one)
				requireVersion(r, t, one, version)
			}
			release()
			require.NoError(r, f.Tidy())
			require.LessOrEqual(r, len(names(t, dir)), 3, "two versions and the lock")
		}
		for _, place := range places[:4] {
			require.NoDirExists(t, place)
		}
		memory := filepath.Dir(places[0])
		require.NoError(r, f.Close())
		if strings.HasPrefix(memory, memoryBase) {
			require.NoDirExists(t, memory)
		}
	})
}

// Many servers ask for a version on disk at the same time.
func TestAVersionIsCopiedToDiskOnce(t *testing.T) {
	t.Parallel()
	from := &shelf{data: map[string][]byte{}}
	f := openInMemory(t, t.TempDir(), nil)
	s, err := f.Land(t.Context(), from, from.publish(t, 1), "")
	require.NoError(t, err)
	release, _ := s.Hold()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			dir, err := s.OnDisk()
			if err == nil {
				_, err = hf.Load(dir)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	release()
	require.NoError(t, f.Close())
}

// A process that is killed leaves its versions in memory. The next process of the user removes them, whichever run it is of, and leaves those of a
// process that lives.
func TestVersionsInMemoryOfAKilledProcessAreRemoved(t *testing.T) {
	if dir := os.Getenv("WEIR_TEST_MEMORY_PLACE"); dir != "" {
		f := openInMemory(t, dir, nil)
		from := &shelf{data: map[string][]byte{}}
		s, err := f.Land(t.Context(), from, from.publish(t, 1), "")
		require.NoError(t, err)
		fmt.Println("landed", s.Dir)
		select {}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestVersionsInMemoryOfAKilledProcessAreRemoved$")
	cmd.Env = append(os.Environ(), "WEIR_TEST_MEMORY_PLACE="+t.TempDir())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	left := ""
	for lines := bufio.NewScanner(out); left == "" && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "--- SKIP") {
			t.Skip(lines.Text())
		}
		left, _ = strings.CutPrefix(lines.Text(), "landed ")
		if left == lines.Text() {
			left = ""
		}
	}
	living := openInMemory(t, t.TempDir(), nil)
	require.DirExists(t, left, "of a process that lives")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	next := openInMemory(t, t.TempDir(), nil)
	require.NoDirExists(t, filepath.Dir(left))
	require.NoError(t, next.Close())
	from := &shelf{data: map[string][]byte{}}
	s, err := living.Land(t.Context(), from, from.publish(t, 2), "")
	require.NoError(t, err)
	requireVersion(t, t, s.Dir, 2)
	require.NoError(t, living.Close())
}
