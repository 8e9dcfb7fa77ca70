package messages

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of two runs of a name that began at the same moment in a bucket that does not refuse to write over the mark, the run whose mark was written
// over sends and removes nothing from then on, and is told so.
//
// Invariant: a spool sends no segment and removes none where another run has taken the mark.
func TestInvariantASpoolSendsNothingWhereAnotherRunHasTheMark(t *testing.T) {
	t.Parallel()
	remote, sent := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}, make(chan error, 100)
	s := startSpool(t, t.TempDir(), remote, SpoolConfig{Sent: func(err error) { sent <- err }, Wait: true})
	a, err := openQuiet(s, Config{Bytes: 1 << 30, Dir: "s3://b"}, Owner{Run: "r", ID: ownID}, born)
	require.NoError(t, err)
	stream := noiseStream(9)
	_, err = a.Keep(t.Context(), stream, 1)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.NoError(t, remote.Put(markName, []byte(otherID+"\n")))
	before, err := remote.Folder.List()
	require.NoError(t, err)

	_, err = a.Keep(t.Context(), stream, 2)
	require.NoError(t, err, "the folder has it")
	refused := <-sent
	require.ErrorIs(t, refused, ErrOtherRun)
	for _, want := range []string{ownID, otherID, "run.name", "trainer.archive.messages.dir"} {
		require.ErrorContains(t, refused, want)
	}
	for !errors.Is(err, ErrOtherRun) { // once the spool has noted the outcome
		stream.publish([]byte("more"))
		_, err = a.Keep(t.Context(), stream, uint64(len(stream.messages)))
	}
	require.ErrorIs(t, err, ErrNotWritten)
	require.NoError(t, s.Remove(a.segments[0].Name))
	require.NoError(t, errors.Join(a.Close(), s.Close()))
	after, err := remote.Folder.List()
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Empty(t, remote.removed)
}

// A mark that somebody has removed is written again before the next segment is sent.
func TestAMarkThatIsGoneIsWrittenAgain(t *testing.T) {
	t.Parallel()
	remote, sent := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}, make(chan error, 100)
	s := startSpool(t, t.TempDir(), remote, SpoolConfig{Sent: func(err error) { sent <- err }})
	a, err := openQuiet(s, Config{Bytes: 1 << 30, Dir: "s3://b"}, Owner{Run: "r", ID: ownID}, born)
	require.NoError(t, err)
	require.NoError(t, remote.Folder.Remove(markName))
	_, err = a.Keep(t.Context(), noiseStream(1), 1)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	mark, err := readMark(remote.Folder, markName)
	require.NoError(t, err)
	require.Equal(t, ownID, mark)
	require.NoError(t, errors.Join(a.Close(), s.Close()))
}

// A segment of an earlier process waited as long as the machine's clock had been set back since.
func TestASegmentWaitsNoLongerThanItsDelayThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), Life{Created: born}.placeOf(Span{0, 1}).segmentName()
	require.NoError(t, Folder{Dir: dir}.Put(name, []byte("segment")))
	ahead := time.Now().Add(48 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, name), ahead, ahead))
	s := startSpool(t, dir, &remoteFolder{Folder: Folder{Dir: t.TempDir()}}, SpoolConfig{Delay: time.Hour})
	work, due, _, _ := s.nextWork()
	require.Nil(t, work)
	require.LessOrEqual(t, due, time.Hour)
	require.NoError(t, s.Close())
}
