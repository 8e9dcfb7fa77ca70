// Package storetest is the contract of a messages.Store: a folder, a spool and a bucket pass the same tests.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// Run runs the contract. open opens the same store again and again.
func Run(t *testing.T, open func(*testing.T) func() messages.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, func() messages.Store){
		"what is put is listed, read by ranges and removed": testPut,
		"a name that is not there":                          testAbsent,
		"a large segment is read in any order":              testRanges,
		"an archive keeps, joins, goes on and is read":      testArchive,
		"the oldest segments are removed":                   testBounds,
		"a store has one owner":                             testOwner,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// SegmentName is the name of a segment of one message.
func SegmentName(sequence uint64) string {
	return fmt.Sprintf("%016x-%06d-%020d-%020d.seg", born.UnixNano(), 0, sequence, sequence)
}

// Random returns bytes that do not compress.
func Random(size int) []byte {
	out := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)})
	_, _ = source.Read(out) // never fails
	return out
}

// ReadAll reads what is under a name.
func ReadAll(t testing.TB, store messages.Segments, name string) []byte {
	t.Helper()
	blob, err := store.Open(name)
	require.NoError(t, err)
	out := make([]byte, blob.Size())
	n, err := blob.ReadAt(out, 0)
	if err != io.EOF || n < len(out) { //nolint:errorlint // io.ReaderAt returns it bare
		require.NoError(t, err)
	}
	require.NoError(t, blob.Close())
	return out
}

// Names returns the names of a store with their sizes.
func Names(t testing.TB, store messages.Segments) map[string]int64 {
	t.Helper()
	all, err := store.List()
	require.NoError(t, err)
	out := map[string]int64{}
	for _, s := range all {
		require.NotContains(t, out, s.Name, "it is listed once")
		out[s.Name] = s.Size
	}
	return out
}

func testPut(t *testing.T, open func() messages.Store) {
	store := open()
	require.Empty(t, Names(t, store))
	a, b := SegmentName(1), SegmentName(2)
	require.NoError(t, store.Put(a, []byte("first")))
	require.NoError(t, store.Put(b, []byte("x")))
	require.Equal(t, map[string]int64{a: 5, b: 1}, Names(t, store))
	require.Equal(t, "first", string(ReadAll(t, store, a)))
	require.Equal(t, "x", string(ReadAll(t, store, b)))
	require.NoError(t, store.Put(a, []byte("again")), "a write that was cut off is repeated")
	require.Equal(t, "again", string(ReadAll(t, store, a)))
	require.NoError(t, store.Sweep())
	require.Equal(t, map[string]int64{a: 5, b: 1}, Names(t, open()))
	require.NoError(t, store.Remove(a))
	require.Equal(t, map[string]int64{b: 1}, Names(t, store))
}

func testAbsent(t *testing.T, open func() messages.Store) {
	store := open()
	_, err := store.Open(SegmentName(7))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, store.Remove(SegmentName(7)))
}

// Finding 14.1: two runs of one name wrote to one store, and each removed the other's segments.
func testOwner(t *testing.T, open func() messages.Store) {
	const id, another = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	store := open()
	have, err := store.Claim(id, false)
	require.NoError(t, err)
	require.Empty(t, have)
	for range 2 {
		have, err = store.Claim(id, true)
		require.NoError(t, err)
		require.Equal(t, id, have)
		store = open()
	}
	have, err = store.Claim(another, true)
	require.NoError(t, err)
	require.Equal(t, id, have)
	_, err = messages.Open(store, messages.Config{Bytes: 1 << 30}, messages.Owner{Run: "r", ID: another}, messages.Life{Created: born},
		slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, messages.ErrOtherRun)
	require.ErrorContains(t, err, id)
}

func testRanges(t *testing.T, open func() messages.Store) {
	store := open()
	data := Random(5<<20 + 123)
	require.NoError(t, store.Put(SegmentName(1), data))
	blob, err := store.Open(SegmentName(1))
	require.NoError(t, err)
	defer func() { require.NoError(t, blob.Close()) }()
	require.EqualValues(t, len(data), blob.Size())
	read := func(at, n int) {
		out := make([]byte, n)
		have, err := blob.ReadAt(out, int64(at))
		want := data[min(at, len(data)):min(at+n, len(data))]
		require.Equal(t, len(want), have, "%d bytes from %d", n, at)
		require.True(t, bytes.Equal(want, out[:have]), "%d bytes from %d", n, at)
		if have < n {
			require.ErrorIs(t, err, io.EOF)
		}
	}
	read(len(data)-56, 56)
	read(0, 8)
	for at := 8; at < len(data); at += 300_001 { // in order
		read(at, 300_001)
	}
	source := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		at := source.IntN(len(data))
		read(at, 1+source.IntN(100_000))
	}
	read(len(data), 5)
	read(0, len(data))
}

var born = time.Unix(1700000000, 42).UTC()

// Stream is a stream in memory.
type Stream struct {
	// Data are the messages; Data[0] has sequence 1.
	Data [][]byte
}

// Publish adds n trajectories, whose ids are ID of their sequences.
func (s *Stream) Publish(t testing.TB, n int) {
	t.Helper()
	for range n {
		const length = 250
		tokens := make([]int32, length)
		for i := range tokens {
			tokens[i] = rand.Int32()
		}
		data, err := schemas.Marshal(&schemas.Trajectory{
			Run: "r", ID: ID(len(s.Data) + 1), Stop: schemas.StopAnswer, Segments: []schemas.Segment{{
				Tokens: tokens, ActionMask: make([]byte, length), Logprobs: make([]float32, length), Versions: make([]int32, length), Temperature: 1,
			}},
		})
		require.NoError(t, err)
		s.Data = append(s.Data, data)
	}
}

// ID is the id of the trajectory of a sequence.
func ID(sequence int) string { return fmt.Sprintf("g%06d-a0-0", sequence) }

// ReadStored implements messages.Source.
func (s *Stream) ReadStored(_ context.Context, after, upTo uint64, size int) (messages.Span, []messages.Message, error) {
	span := messages.Span{After: after, Last: after}
	var out []messages.Message
	for n := 0; span.Last < min(upTo, uint64(len(s.Data))) && n < size; n += len(s.Data[span.Last-1]) {
		span.Last++
		out = append(out, messages.Message{Sequence: span.Last, Subject: "weir.r.trajectories.0.p", At: born, Data: s.Data[span.Last-1]})
	}
	return span, out, nil
}

// OpenArchive opens an archive of a store.
func OpenArchive(t testing.TB, store messages.Store, bytes int64) *messages.Archive {
	t.Helper()
	life := messages.Life{Created: born}
	a, err := messages.Open(store, messages.Config{Bytes: bytes}, messages.Owner{Run: "r"}, life, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return a
}

// RequireKept makes sure that a store has the stream's messages up to a sequence, each once, and verifies.
func RequireKept(t testing.TB, store messages.Segments, stream *Stream, from, upTo int) {
	t.Helper()
	next := from
	for m, err := range messages.All(store) {
		require.NoError(t, err)
		require.EqualValues(t, next, m.Sequence)
		require.Equal(t, stream.Data[next-1], m.Data)
		next++
	}
	require.Equal(t, upTo+1, next)
	found, err := messages.Verify(store)
	require.NoError(t, err)
	require.Empty(t, found.Damage)
	require.Empty(t, found.Notes)
	require.Equal(t, upTo-from+1, found.Messages)
}

func testArchive(t *testing.T, open func() messages.Store) {
	var stream Stream
	for round := 1; round <= 3; round++ {
		a := OpenArchive(t, open(), 1<<30)
		for range 5 {
			stream.Publish(t, 4)
			lost, err := a.Keep(t.Context(), &stream, uint64(len(stream.Data)))
			require.NoError(t, err)
			require.Zero(t, lost)
		}
		require.NoError(t, a.Close())
		require.LessOrEqual(t, len(Names(t, open())), 6, "of 15 that were written")
	}
	RequireKept(t, open(), &stream, 1, 60)
	m, err := messages.Find(open(), ID(33))
	require.NoError(t, err)
	require.Equal(t, stream.Data[32], m.Data)
	_, err = messages.Find(open(), ID(61))
	require.ErrorIs(t, err, messages.ErrNotKept)
}

func testBounds(t *testing.T, open func() messages.Store) {
	store := open()
	a := OpenArchive(t, store, 1<<20)
	defer func() { require.NoError(t, a.Close()) }()
	var stream Stream
	for range 20 {
		stream.Publish(t, 1)
		stream.Data[len(stream.Data)-1] = Random(128<<10 + len(stream.Data))
		_, err := a.Keep(t.Context(), &stream, uint64(len(stream.Data)))
		require.NoError(t, err)
	}
	size := int64(0)
	for _, n := range Names(t, store) {
		size += n
	}
	require.LessOrEqual(t, size, int64(1<<20))
	first := 0
	for m, err := range messages.All(store) {
		require.NoError(t, err)
		if first == 0 {
			first = int(m.Sequence)
		}
	}
	require.Greater(t, first, 10)
	RequireKept(t, store, &stream, first, 20)
}
