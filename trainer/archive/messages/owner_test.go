package messages

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ownID   = "0123456789abcdef0123456789abcdef"
	otherID = "fedcba9876543210fedcba9876543210"
)

// openQuiet opens an archive and logs nowhere.
func openQuiet(store Store, cfg Config, owner Owner, created time.Time) (*Archive, error) {
	return Open(store, cfg, owner, Life{Created: created}, slog.New(slog.DiscardHandler))
}

// noiseStream publishes n messages of 100 KiB that do not compress.
func noiseStream(n int) *memoryStream {
	stream := &memoryStream{messages: map[uint64]Message{}}
	state := uint32(1)
	for range n {
		noise := make([]byte, 100<<10)
		for i := range noise {
			state = state*1664525 + 1013904223
			noise[i] = byte(state >> 24)
		}
		stream.publish(noise)
	}
	return stream
}

// keepAs keeps n messages of a stream that was made at a time.
func keepAs(t *testing.T, store Store, cfg Config, owner Owner, created time.Time, n int) {
	t.Helper()
	a, err := openQuiet(store, cfg, owner, created)
	require.NoError(t, err)
	defer a.Close()
	stream := noiseStream(n)
	for s := range uint64(n) {
		_, err = a.Keep(t.Context(), stream, s+1)
		require.NoError(t, err)
	}
}

// segmentsOf counts the segments of a stream.
func segmentsOf(t *testing.T, store Segments, created time.Time) (n int) {
	t.Helper()
	all, _, err := listSegments(store)
	require.NoError(t, err)
	for _, s := range all {
		if s.created == created.UnixNano() {
			n++
		}
	}
	return n
}

// Finding 14.1: two runs of one name in one archive took each other's segments for their own.
//
// Invariant: an archive has one owner, and no other run writes to it or removes from it.
func TestInvariantAnArchiveHasOneOwner(t *testing.T) {
	t.Parallel()
	cfg := Config{Bytes: 1 << 30, Dir: "/mnt/kept"}
	own, other := Owner{Run: "r", ID: ownID}, Owner{Run: "r", ID: otherID, File: "runs/r/checkpoints/archive/owner"}
	store := Folder{Dir: t.TempDir()}
	keepAs(t, store, cfg, own, born, 2)
	before, err := store.List()
	require.NoError(t, err)
	_, err = openQuiet(store, cfg, other, born.Add(time.Hour))
	require.ErrorIs(t, err, ErrOtherRun)
	for _, want := range []string{
		"/mnt/kept", "run r", ownID, otherID, "run.name", "trainer.archive.messages.dir", "write " + ownID + " to " + other.File,
	} {
		require.ErrorContains(t, err, want)
	}
	after, err := store.List()
	require.NoError(t, err)
	require.Equal(t, before, after)
	// Also where the other begins before a first segment is there.
	store = Folder{Dir: t.TempDir()}
	a, err := openQuiet(store, cfg, own, born)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	_, err = openQuiet(store, cfg, other, born.Add(time.Hour))
	require.ErrorIs(t, err, ErrOtherRun)
	// The owner goes on, also with another stream, and what it is told to do lets the other go on.
	a, err = openQuiet(store, cfg, own, born.Add(2*time.Hour))
	require.NoError(t, err)
	require.NoError(t, a.Close())
	other.ID = ownID
	a, err = openQuiet(store, cfg, other, born.Add(time.Hour))
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// An archive of an earlier build has no mark: the run whose stream its segments are of goes on with it, and no other.
func TestAnArchiveWithoutAMarkIsThatOfTheRunWhoseStreamsItHas(t *testing.T) {
	t.Parallel()
	cfg := Config{Bytes: 1 << 30, Dir: "/mnt/kept"}
	streamsOf := func(all ...time.Time) func() ([]time.Time, error) {
		return func() ([]time.Time, error) { return all, nil }
	}
	for name, test := range map[string]struct {
		owner   Owner
		created time.Time
		wrong   string
	}{
		"the stream of now":            {Owner{Run: "r", ID: ownID}, born, ""},
		"an earlier stream":            {Owner{Run: "r", ID: ownID, Streams: streamsOf(born)}, born.Add(time.Hour), ""},
		"in the run's folder":          {Owner{Run: "r", ID: ownID, Inside: true}, born.Add(time.Hour), ""},
		"another stream":               {Owner{Run: "r", ID: ownID, Streams: streamsOf(born.Add(1))}, born.Add(time.Hour), "write " + ownID},
		"a run that knows no stream":   {Owner{Run: "r", ID: ownID}, born.Add(time.Hour), "no segment of a stream"},
		"a record that cannot be read": {Owner{Run: "r", ID: ownID, Streams: func() ([]time.Time, error) { return nil, errAway }}, born.Add(1), errAway.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := Folder{Dir: t.TempDir()}
			keepAs(t, store, cfg, Owner{Run: "r"}, born, 1)
			a, err := openQuiet(store, cfg, test.owner, test.created)
			mark, markErr := readMark(store, markName)
			require.NoError(t, markErr)
			if test.wrong != "" {
				require.ErrorContains(t, err, test.wrong)
				require.Empty(t, mark)
				return
			}
			require.NoError(t, err)
			require.NoError(t, a.Close())
			require.Equal(t, ownID, mark)
		})
	}
}

// Finding 14.1: the bounds of one run's archive removed the segments of another's that lay there before archives had owners.
func TestBoundsRemoveTheSegmentsOfTheOwnerAlone(t *testing.T) {
	t.Parallel()
	store, own := Folder{Dir: t.TempDir()}, Owner{Run: "r", ID: ownID}
	large, small := Config{Bytes: 1 << 30}, Config{Bytes: 1 << 20}
	older, newer, earlier := born.Add(-time.Hour), born.Add(3*time.Hour), born.Add(time.Hour)
	keepAs(t, store, large, own, earlier, 8) // an earlier stream of the run
	keepAs(t, Folder{Dir: store.Dir}, large, Owner{Run: "r"}, older, 8)
	keepAs(t, Folder{Dir: store.Dir}, small, Owner{Run: "r"}, newer, 2)
	before, after := segmentsOf(t, store, older), segmentsOf(t, store, newer)
	require.Positive(t, before)
	require.Equal(t, 2, after, "two that could be joined")
	a, err := openQuiet(store, large, own, born.Add(2*time.Hour))
	require.NoError(t, err)
	_, err = a.Keep(t.Context(), noiseStream(0), 0)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.Equal(t, after, segmentsOf(t, store, newer), "they are not joined")
	keepAs(t, store, small, own, born.Add(2*time.Hour), 20)
	require.Equal(t, before, segmentsOf(t, store, older))
	require.Equal(t, after, segmentsOf(t, store, newer))
	require.Zero(t, segmentsOf(t, store, earlier), "the run's own oldest go first")
	require.Positive(t, segmentsOf(t, store, born.Add(2*time.Hour)))
	// Once the run knows of a stream its segments are its own again.
	own.Streams = func() ([]time.Time, error) { return []time.Time{older}, nil }
	keepAs(t, store, small, own, born.Add(2*time.Hour+1), 20)
	require.Zero(t, segmentsOf(t, store, older))
	require.Equal(t, after, segmentsOf(t, store, newer))
}

// A spool that goes on without its bucket believes the mark that the bucket had, and no other.
func TestASpoolGoesOnWithoutItsBucketForTheOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	remote := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
	s := startSpool(t, dir, remote, SpoolConfig{})
	keepAs(t, s, Config{Bytes: 1 << 30}, Owner{Run: "r", ID: ownID}, born, 1)
	require.NoError(t, s.Close())
	mark, err := readMark(remote.Folder, markName)
	require.NoError(t, err)
	require.Equal(t, ownID, mark)
	remote.set(func() { remote.away = true })
	s = startSpool(t, dir, remote, SpoolConfig{})
	defer func() { require.NoError(t, s.Close()) }()
	a, err := openQuiet(s, Config{Bytes: 1 << 30}, Owner{Run: "r", ID: ownID}, born)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	_, err = openQuiet(s, Config{Bytes: 1 << 30}, Owner{Run: "r", ID: otherID}, born)
	require.ErrorIs(t, err, errAway)
	remote.set(func() { remote.away = false })
	_, err = openQuiet(s, Config{Bytes: 1 << 30}, Owner{Run: "r", ID: otherID}, born)
	require.ErrorIs(t, err, ErrOtherRun)
}

// Of two that find no mark at the same moment the one whose mark is there afterwards is the owner.
func TestAMarkThatIsWrittenMeanwhileWins(t *testing.T) {
	t.Parallel()
	folder := Folder{Dir: t.TempDir()}
	have, err := ClaimMark(folder, ownID, true, func(name string, _ []byte) error {
		require.NoError(t, folder.Put(name, []byte(otherID+"\n")))
		return errors.Join(errAway, os.ErrExist)
	})
	require.NoError(t, err)
	require.Equal(t, otherID, have)
	_, err = ClaimMark(Folder{Dir: t.TempDir()}, ownID, true, func(string, []byte) error { return errAway })
	require.ErrorIs(t, err, errAway)
	have, err = Folder{Dir: t.TempDir()}.Claim(ownID, false)
	require.NoError(t, err)
	require.Empty(t, have)
}

// A run's id is drawn once, and a file that is something else is named.
func TestARunsIDIsDrawnOnce(t *testing.T) {
	t.Parallel()
	file := OwnerFile(filepath.Join(t.TempDir(), "archive"))
	id, err := ReadOwnerID(file)
	require.NoError(t, err)
	again, err := ReadOwnerID(file)
	require.NoError(t, err)
	require.Equal(t, id, again)
	another, err := ReadOwnerID(OwnerFile(t.TempDir()))
	require.NoError(t, err)
	require.NotEqual(t, id, another)
	for _, wrong := range []string{"", "\n", id[1:], id + id, "x" + id[1:]} {
		require.NoError(t, os.WriteFile(file, []byte(wrong), 0o600))
		_, err = ReadOwnerID(file)
		require.ErrorContains(t, err, "owner")
	}
}
