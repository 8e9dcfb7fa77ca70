package consumers_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
)

// leased is a folder of versions, as a follower fills it.
type leased struct {
	*consumers.Folder
	t    *testing.T
	from *shelf
}

func newLeased(t *testing.T) *leased {
	t.Helper()
	f, err := consumers.OpenFolder(t.TempDir(), beside)
	require.NoError(t, err)
	l := &leased{f, t, &shelf{data: map[string][]byte{}}}
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// land fetches a version; used has it come into use too.
func (l *leased) land(version int64) consumers.Snapshot {
	l.t.Helper()
	s, err := l.Land(l.t.Context(), l.from, l.from.publish(l.t, version), "")
	require.NoError(l.t, err)
	return s
}

func (l *leased) used(version int64) consumers.Snapshot {
	l.t.Helper()
	s := l.land(version)
	require.NoError(l.t, l.Tidy())
	return s
}

func (l *leased) has(folders ...string) {
	l.t.Helper()
	require.Equal(l.t, append([]string{".lock"}, folders...), names(l.t, l.Dir()))
}

func hold(t *testing.T, s consumers.Snapshot) (release func()) {
	t.Helper()
	release, ok := s.Hold()
	require.True(t, ok)
	return release
}

// Finding Q4 of the core's second review: a folder goes when it is old and the last that held it has let go.
func TestAFolderThatIsHeldStays(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	first := f.used(0)
	one, other := hold(t, first), hold(t, first)
	for version := range int64(3) {
		f.used(version + 1)
	}
	f.has("v0", "v2", "v3")
	one()
	one() // more than once is once
	f.has("v0", "v2", "v3")
	m, err := hf.Load(first.Dir)
	require.NoError(t, err)
	require.Equal(t, fakemodel.Weights(t, 0).Tensors[0].Data, m.Weights.Tensors[0].Data)
	other()
	f.has("v2", "v3")
	_, ok := first.Hold()
	require.False(t, ok, "it is gone")

	// Let go while it is new, it stays as any other.
	hold(t, f.used(4))()
	f.has("v3", "v4")
	release, ok := consumers.Snapshot{Dir: "of somebody else"}.Hold()
	require.True(t, ok)
	release()
}

// A version that was dropped while a server still loads it takes no place among the kept versions.
func TestAFolderThatIsForsakenAndHeldStays(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.used(0)
	release := hold(t, f.land(1)) // no server takes it
	f.used(2)
	f.has("v0", "v1", "v2")
	release()
	f.has("v0", "v2")

	// Forsaken and held, and published again: it is the newest, and as good as ever.
	again := hold(t, f.land(3))
	f.used(4)
	loads := f.from.loads
	f.used(3)
	require.Equal(t, loads, f.from.loads)
	again()
	f.has("v3", "v4")
	f.used(5)
	f.has("v3", "v5")
}

// A trainer that goes back to an older version has that one in use: it stays beside the next, and not the version that was given up.
func TestAVersionThatIsGoneBackToIsTheNewest(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.used(0)
	f.used(1)
	f.used(0)
	f.has("v0", "v1")
	f.used(2)
	f.has("v0", "v2")
}

// A version whose file somebody changed lands anew beside the folder that is being read.
func TestAVersionLandsBesideItsFolderThatIsHeld(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	spoilt := f.used(0)
	release := hold(t, spoilt)
	require.NoError(t, os.WriteFile(filepath.Join(spoilt.Dir, "model-00001-of-00003.safetensors"), []byte("spoilt"), 0o644))
	anew := f.used(0)
	require.NotEqual(t, spoilt.Dir, anew.Dir)
	f.has("v0", "v0-2")
	_, err := hf.Load(anew.Dir)
	require.NoError(t, err)
	release()
	f.has("v0-2")

	// A process that was killed while it held a folder leaves nothing to the next.
	hold(t, f.used(1))
	dir := f.Dir()
	require.NoError(t, f.Close())
	next, err := consumers.OpenFolder(dir, beside)
	require.NoError(t, err)
	require.Equal(t, []string{".lock"}, names(t, dir))
	f.Folder = next
	f.used(2)
	f.has("v2")
}
