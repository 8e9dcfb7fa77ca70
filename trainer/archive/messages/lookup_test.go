package messages

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkLookup compares what a Lookup finds with the messages that a folder has.
func checkLookup(t require.TestingT, dir string, want map[uint64][]byte) {
	l, err := OpenLookup(Folder{Dir: dir})
	require.NoError(t, err)
	defer l.Close()
	damage, notes := l.Damage()
	require.Empty(t, damage)
	require.Empty(t, notes)
	var found []uint64
	for n := range l.Names() {
		found = append(found, n.Sequence)
		m, err := l.Read(n)
		require.NoError(t, err)
		require.Equal(t, want[n.Sequence], m.Data)
		_, err = l.Read(Name{n.ID, n.Sequence + 1<<40})
		require.ErrorIs(t, err, ErrNotKept)
	}
	require.True(t, slices.IsSorted(found))
	for s, data := range want {
		_, id := identifyMessage(data)
		require.Equal(t, id != "", slices.Contains(found, s), "message %d", s)
	}
}

// A Lookup reads a message whose segment was joined with another since it was opened.
func TestALookupFollowsSegmentsThatAreJoined(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := Config{Bytes: 64 << 20}
	stream := keepMany(t, dir, cfg, 100, 110)
	l, err := OpenLookup(Folder{Dir: dir})
	require.NoError(t, err)
	defer l.Close()
	require.Equal(t, []string{"r"}, l.Runs())
	a, err := Open(Folder{Dir: dir}, cfg, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for range 10 {
		stream.publish(trajectoryBytes(t, "g000111-a0-0", 200))
	}
	_, err = a.Keep(t.Context(), stream, stream.last)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	n := 0
	for name := range l.Names() {
		m, err := l.Read(name)
		require.NoError(t, err)
		require.Equal(t, stream.messages[name.Sequence].Data, m.Data)
		n++
	}
	require.Equal(t, 110, n, "those that were there when it was opened")
}

// A bit of a block, a bit of an index and a segment that is gone are named, and every other message is read.
func TestALookupNamesWhatIsDamaged(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, spoil func(segments []string)) *Lookup {
		t.Helper()
		dir := t.TempDir()
		keepMany(t, dir, Config{Bytes: 64 << 20}, 400, 460, 470)
		segments, err := filepath.Glob(filepath.Join(dir, "*.seg"))
		require.NoError(t, err)
		require.Len(t, segments, 3)
		spoil(segments)
		l, err := OpenLookup(Folder{Dir: dir})
		require.NoError(t, err)
		t.Cleanup(l.Close)
		return l
	}
	flip := func(path string, at int) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[(at+len(data))%len(data)] ^= 8
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	read := func(t *testing.T, l *Lookup) (whole int, damaged []*Damage) {
		t.Helper()
		for n := range l.Names() {
			_, err := l.Read(n)
			if err == nil {
				whole++
				continue
			}
			d := new(Damage)
			require.ErrorAs(t, err, &d)
			damaged = append(damaged, d)
		}
		return whole, damaged
	}

	var second string
	l := open(t, func(s []string) { second = filepath.Base(s[1]); flip(s[1], 20) })
	found, _ := l.Damage()
	require.Empty(t, found, "an index does not tell")
	whole, damaged := read(t, l)
	require.Equal(t, 470, whole+len(damaged))
	require.GreaterOrEqual(t, whole, 410)
	require.NotEmpty(t, damaged)
	require.Equal(t, second, damaged[0].Segment)

	// Finding 14.4: a damaged block was the block 0 of each segment. Its number is that which Verify names.
	l = open(t, func(s []string) {
		info, err := os.Stat(s[0])
		require.NoError(t, err)
		flip(s[0], int(info.Size()/2))
	})
	_, damaged = read(t, l)
	verified, err := Verify(l.store)
	require.NoError(t, err)
	require.Len(t, verified.Damage, 1)
	require.NotContains(t, verified.Damage[0].Want, "block 0 ")
	require.NotEmpty(t, damaged)
	for _, d := range damaged {
		require.Equal(t, verified.Damage[0], d)
	}

	l = open(t, func(s []string) { second = filepath.Base(s[1]); flip(s[1], -100) })
	found, _ = l.Damage()
	require.Len(t, found, 1)
	require.Equal(t, second, found[0].Segment)
	whole, damaged = read(t, l)
	require.Equal(t, 410, whole)
	require.Empty(t, damaged)

	l = open(t, func(s []string) { second = filepath.Base(s[1]); require.NoError(t, os.Remove(s[1])) })
	found, _ = l.Damage()
	require.Len(t, found, 1)
	require.Contains(t, found[0].Error(), second)
	require.Contains(t, found[0].Error(), "no such file")
	whole, _ = read(t, l)
	require.Equal(t, 410, whole)

	// Gone after it was opened.
	l = open(t, func(s []string) { second = s[1] })
	require.NoError(t, os.Remove(second))
	for n := range l.Names() {
		_, err := l.Read(n)
		if n.Sequence > 400 && n.Sequence <= 460 {
			require.ErrorIs(t, err, ErrNotKept)
		} else {
			require.NoError(t, err)
		}
	}
}
