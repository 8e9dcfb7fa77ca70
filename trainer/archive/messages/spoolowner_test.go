package messages

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Invariant: an archive has one owner, and no other run writes to it or removes from it: not what lies in the spool of a run that is
// refused either (finding 15b.1).
func TestASpoolOfARunThatIsRefusedSendsNothing(t *testing.T) {
	t.Parallel()
	bucket := Config{Bytes: 1 << 30, Dir: "s3://team/weir"}
	for name, cfg := range map[string]SpoolConfig{"at once": {}, "when it is closed": {Delay: time.Hour}, "as it is full": {Bytes: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
			s := startUnknown(t, t.TempDir(), theirs, SpoolConfig{})
			keepAs(t, s, bucket, Owner{Run: "r", ID: ownID}, born, 1)
			require.NoError(t, s.Close())
			before, err := theirs.Folder.List()
			require.NoError(t, err)
			require.Len(t, before, 2, "a segment and the mark")

			dir := t.TempDir()
			keepAs(t, Folder{Dir: dir}, Config{Bytes: 1 << 30}, Owner{Run: "r"}, born.Add(time.Hour), 1)
			waits, err := Folder{Dir: dir}.List()
			require.NoError(t, err)
			s = startUnknown(t, dir, theirs, cfg)
			_, err = openQuiet(s, bucket, Owner{Run: "r", ID: otherID}, born.Add(time.Hour))
			require.ErrorIs(t, err, ErrOtherRun)
			require.NoError(t, s.Close())
			after, err := theirs.Folder.List()
			require.NoError(t, err)
			require.Equal(t, before, after)
			left, err := Folder{Dir: dir}.List()
			require.NoError(t, err)
			require.Equal(t, waits, left, "the refused run's segments wait for a place of their own")
		})
	}
}

// A spool that was opened while the bucket was away, and goes on by its own note, asks the bucket before it sends: it may be another by
// then.
func TestABucketThatWasAwayIsAskedWhoseItIs(t *testing.T) {
	bucket := Config{Bytes: 1 << 30, Dir: "s3://team/weir"}
	for name, mark := range map[string]string{"its own": ownID, "another's": otherID, "nobody's": ""} {
		t.Run(name, func(t *testing.T) {
			dir, remote := t.TempDir(), &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
			s := startUnknown(t, dir, remote, SpoolConfig{})
			keepAs(t, s, bucket, Owner{Run: "r", ID: ownID}, born, 1)
			require.NoError(t, s.Close())

			other := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
			if mark != "" {
				require.NoError(t, other.Folder.Put(markName, []byte(mark+"\n")))
			}
			other.set(func() { other.away = true })
			s = startUnknown(t, dir, other, SpoolConfig{})
			keepAs(t, s, bucket, Owner{Run: "r", ID: ownID}, born.Add(time.Hour), 1)
			other.set(func() { other.away = false })
			awaitSpool(t, s, func() bool { return s.asks == nil })
			require.NoError(t, s.Close())
			sent, err := other.Folder.List()
			require.NoError(t, err)
			if mark == otherID {
				require.Len(t, sent, 1, "the mark alone")
				require.ErrorIs(t, s.failure, ErrOtherRun)
				return
			}
			require.Len(t, sent, 2, "the mark, and the segment of the second life")
		})
	}
}

// The spool of a role sends what it has before the trainer asks for anything, where the bucket has the run's mark; a spool that was only
// opened, as by a second trainer which is refused, changes nothing (finding 15b.2).
func TestASpoolSendsOnceItIsKnownToBeTheOnly(t *testing.T) {
	t.Parallel()
	dir, remote := t.TempDir(), &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
	s := startUnknown(t, dir, remote, SpoolConfig{Delay: time.Hour})
	keepAs(t, s, Config{Bytes: 1 << 30, Dir: "s3://team/weir"}, Owner{Run: "r", ID: ownID}, born, 1)
	killSpool(s)
	listBoth := func() (here, there int) {
		h, err := Folder{Dir: dir}.List()
		require.NoError(t, err)
		o, err := remote.Folder.List()
		require.NoError(t, err)
		return len(h), len(o)
	}
	here, there := listBoth()
	require.Equal(t, []int{2, 1}, []int{here, there}, "the segment and the mark, and the mark alone")

	require.NoError(t, startUnknown(t, dir, remote, SpoolConfig{}).Close())
	here, there = listBoth()
	require.Equal(t, []int{2, 1}, []int{here, there})

	s = startUnknown(t, dir, remote, SpoolConfig{})
	require.NoError(t, s.SendOwn())
	require.NoError(t, s.Close())
	here, there = listBoth()
	require.Equal(t, []int{2, 2}, []int{here, there}, "the segment is in the bucket, and here is a note of it")
}

// A file that somebody removed from the spool stops no segment behind it (finding 15b.2).
func TestASegmentThatIsGoneFromTheSpoolIsPassedOver(t *testing.T) {
	t.Parallel()
	dir, remote := t.TempDir(), &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
	s := startSpool(t, dir, remote, SpoolConfig{Delay: time.Hour})
	var names []string
	for sequence := range uint64(3) {
		name := Life{Created: born}.placeOf(Span{sequence, sequence + 1}).segmentName()
		require.NoError(t, s.Put(name, []byte(name)))
		names = append(names, name)
	}
	require.NoError(t, s.Folder.Remove(names[0]))
	require.NoError(t, s.Folder.Put(names[1]+sentEnding, []byte("1")))
	require.NoError(t, s.Folder.Remove(names[1]))
	require.NoError(t, s.Close())
	sent, err := remote.Folder.List()
	require.NoError(t, err)
	require.Len(t, sent, 1)
	require.Equal(t, names[2], sent[0].Name)
	require.Zero(t, s.bytes)
}
