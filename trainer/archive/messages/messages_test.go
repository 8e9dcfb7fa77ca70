package messages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

var born = time.Unix(1700000000, 42).UTC()

// trajectoryBytes is a trajectory as it is on the wire.
func trajectoryBytes(t require.TestingT, id string, tokens int) []byte {
	s := schemas.Segment{Temperature: 1}
	for i := range tokens {
		s.Tokens = append(s.Tokens, int32(i))
		s.ActionMask = append(s.ActionMask, byte(min(i, 1)))
		s.Logprobs = append(s.Logprobs, -0.5)
		s.Versions = append(s.Versions, int32(min(i, 1)-1))
	}
	data, err := schemas.Marshal(&schemas.Trajectory{Run: "r", ID: id, Segments: []schemas.Segment{s}, Stop: schemas.StopAnswer})
	require.NoError(t, err)
	return data
}

// memoryStream is a stream in memory: the messages by sequence, and the sequence up to which it was purged.
type memoryStream struct {
	messages map[uint64]Message
	purged   uint64
	last     uint64
}

func (s *memoryStream) publish(data []byte) {
	s.last++
	s.messages[s.last] = Message{Sequence: s.last, Subject: "weir.r.trajectories.0.p", At: born.Add(time.Duration(s.last)), Data: data}
}

func (s *memoryStream) ReadStored(_ context.Context, after, upTo uint64, bytes int) (Span, []Message, error) {
	span := Span{max(after, s.purged), max(after, s.purged)}
	var out []Message
	for n := 0; span.Last < min(upTo, s.last) && n < bytes; {
		span.Last++
		if m, ok := s.messages[span.Last]; ok {
			n += len(m.Data)
			out = append(out, m)
		}
	}
	return span, out, nil
}

// faultyStore is a folder whose process dies, or whose disk is full, at a chosen call.
type faultyStore struct {
	Folder
	// fault is asked before each call that writes, and says how it fails: "" not at all.
	fault func() string
}

var errDied = errors.New("died")

func (s *faultyStore) Put(name string, data []byte) error {
	path := filepath.Join(s.Dir, name)
	switch s.fault() {
	case "before":
		return errDied
	case "half": // the file beside is there, in part
		return errors.Join(errDied, os.WriteFile(path+tmpEnding, data[:len(data)/2], 0o644))
	case "after":
		return errors.Join(errDied, s.putUnsynced(name, data))
	}
	return s.putUnsynced(name, data)
}

// putUnsynced is Put without syncs, of which a property needs thousands.
func (s *faultyStore) putUnsynced(name string, data []byte) error {
	path := filepath.Join(s.Dir, name)
	return errors.Join(os.WriteFile(path+tmpEnding, data, 0o600), os.Rename(path+tmpEnding, path))
}

func (s *faultyStore) Remove(name string) error {
	switch s.fault() {
	case "before", "half":
		return errDied
	case "after":
		return errors.Join(errDied, s.Folder.Remove(name))
	}
	return s.Folder.Remove(name)
}

// readAll returns the data of all messages by sequence, and fails on damage and on a sequence that comes twice.
func readAll(t require.TestingT, store Segments) map[uint64][]byte {
	out := map[uint64][]byte{}
	for m, err := range All(store) {
		require.NoError(t, err)
		require.NotContains(t, out, m.Sequence)
		out[m.Sequence] = m.Data
	}
	return out
}

// Invariant: whatever is purged is kept, and kept once, wherever the writer dies.
func TestInvariantWhateverIsPurgedIsKeptWhereverTheWriterDies(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var checks atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		dir := filepath.Join(folder, fmt.Sprint(checks.Add(1)))
		require.NoError(t, os.Mkdir(dir, 0o755))
		stream := &memoryStream{messages: map[uint64]Message{}}
		all := map[uint64][]byte{}
		armed := ""
		store := &faultyStore{Folder: Folder{Dir: dir}, fault: func() string {
			if armed != "" && rapid.Bool().Draw(t, "here") {
				how := armed
				armed = ""
				return how
			}
			return ""
		}}
		open := func() *Archive {
			a, err := Open(Folder{Dir: dir}, Config{Bytes: 1 << 30}, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			a.store = store
			return a
		}
		a := open()
		for range rapid.IntRange(1, 15).Draw(t, "rounds") {
			for range rapid.IntRange(0, 12).Draw(t, "published") {
				data := trajectoryBytes(t, fmt.Sprintf("g%06d-a0-0", stream.last+1), rapid.IntRange(2, 40).Draw(t, "tokens"))
				if rapid.IntRange(0, 9).Draw(t, "strange") == 0 {
					data = []byte("no message")
				}
				stream.publish(data)
				all[stream.last] = data
				if rapid.IntRange(0, 19).Draw(t, "removed") == 0 { // by hand
					delete(stream.messages, stream.last)
					delete(all, stream.last)
				}
			}
			upTo := rapid.Uint64Range(stream.purged, stream.last).Draw(t, "up to")
			armed = rapid.SampledFrom([]string{"", "", "before", "half", "after"}).Draw(t, "fault")
			lost, err := a.Keep(t.Context(), stream, upTo)
			armed = ""
			if err != nil {
				require.ErrorIs(t, err, errDied)
				require.NoError(t, a.Close())
				a = open()
				lost, err = a.Keep(t.Context(), stream, upTo)
				require.NoError(t, err)
			}
			require.Zero(t, lost)
			require.GreaterOrEqual(t, a.Last(), upTo)
			for s := range stream.messages {
				if s <= upTo {
					delete(stream.messages, s)
				}
			}
			stream.purged = max(stream.purged, upTo)
		}
		require.NoError(t, a.Close())
		want := maps.Clone(all)
		maps.DeleteFunc(want, func(s uint64, _ []byte) bool { return s > a.Last() })
		require.Equal(t, want, readAll(t, Folder{Dir: dir}))
		verified, err := Verify(Folder{Dir: dir})
		require.NoError(t, err)
		require.Empty(t, verified.Damage)
		require.Empty(t, verified.Notes)
		require.Equal(t, len(want), verified.Messages)
		checkLookup(t, dir, want)
		for s, data := range want {
			found, err := Find(Folder{Dir: dir}, fmt.Sprintf("g%06d-a0-0", s))
			if _, id := identifyMessage(data); id == "" {
				require.ErrorIs(t, err, ErrNotKept)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, data, found.Data)
		}
	})
}

// keepMany keeps messages in several segments, and returns the folder.
func keepMany(t *testing.T, dir string, cfg Config, purges ...uint64) *memoryStream {
	t.Helper()
	stream := &memoryStream{messages: map[uint64]Message{}}
	for i := range purges[len(purges)-1] {
		stream.publish(trajectoryBytes(t, fmt.Sprintf("g%06d-a0-0", i+1), 200+int(i)))
	}
	a, err := Open(Folder{Dir: dir}, cfg, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for _, upTo := range purges {
		_, err := a.Keep(t.Context(), stream, upTo)
		require.NoError(t, err)
	}
	require.NoError(t, a.Close())
	return stream
}

// Readers get every message, each once, though its segment is joined with others while they read.
func TestReadersFollowSegmentsThatAreJoined(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := Config{Bytes: 64 << 20}
	stream := keepMany(t, dir, cfg, 100, 110)
	a, err := Open(Folder{Dir: dir}, cfg, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	require.Len(t, a.segments, 2)
	joinLast := func() {
		for range 10 {
			stream.publish(trajectoryBytes(t, fmt.Sprintf("g%06d-a0-0", stream.last+1), 200))
		}
		_, err := a.Keep(t.Context(), stream, stream.last)
		require.NoError(t, err)
	}
	var got []uint64
	for m, err := range All(Folder{Dir: dir}) {
		require.NoError(t, err)
		if got = append(got, m.Sequence); len(got) == 1 {
			joinLast() // the second segment is that of 101 to 120 now
		}
	}
	require.Len(t, got, 120)
	for i, sequence := range got {
		require.EqualValues(t, i+1, sequence)
	}
	joined := false
	m, err := Find(&openedStore{Folder{Dir: dir}, func() {
		if !joined {
			joined = true
			joinLast()
		}
	}}, "g000105-a0-0")
	require.NoError(t, err)
	require.EqualValues(t, 105, m.Sequence)
}

// openedStore is a folder that calls a function before a segment is opened.
type openedStore struct {
	Folder
	before func()
}

func (s *openedStore) Open(name string) (Blob, error) {
	s.before()
	return s.Folder.Open(name)
}

func TestALongRunHasFewSegments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var purges []uint64
	for upTo := uint64(3); upTo <= 180; upTo += 3 {
		purges = append(purges, upTo)
	}
	keepMany(t, dir, Config{Bytes: 1 << 30}, purges...)
	segments, covered, err := listSegments(Folder{Dir: dir})
	require.NoError(t, err)
	require.Empty(t, covered)
	require.LessOrEqual(t, len(segments), 8, "of 60 that were written")
	require.Len(t, readAll(t, Folder{Dir: dir}), 180)
}

// Invariant: a flipped bit in a segment is found, and the segment is named.
func TestInvariantAFlippedBitInASegmentIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keepMany(t, dir, Config{Bytes: 1 << 30}, 8)
	segments, _, err := listSegments(Folder{Dir: dir})
	require.NoError(t, err)
	require.Len(t, segments, 1)
	path := filepath.Join(dir, segments[0].Name)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for at := 0; at < len(whole); at += max(1, len(whole)/400) {
		changed := bytes.Clone(whole)
		changed[at] ^= 1 << (at % 8)
		require.NoError(t, os.WriteFile(path, changed, 0o644))
		found, err := Verify(Folder{Dir: dir})
		require.NoError(t, err)
		require.Len(t, found.Damage, 1, "byte %d of %d", at, len(whole))
		require.Equal(t, segments[0].Name, found.Damage[0].Segment)
	}
	require.NoError(t, os.WriteFile(path, whole[:len(whole)-1], 0o644))
	found, err := Verify(Folder{Dir: dir})
	require.NoError(t, err)
	require.Len(t, found.Damage, 1)
	_, err = Find(Folder{Dir: dir}, "g000003-a0-0")
	require.ErrorIs(t, err, ErrNotKept)
	require.ErrorContains(t, err, segments[0].Name)
	var damage []error
	for m, err := range All(Folder{Dir: dir}) {
		require.Nil(t, m)
		damage = append(damage, err)
	}
	require.Len(t, damage, 1)
}

func TestASegmentThatIsMissingBetweenOthersIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keepMany(t, dir, Config{Bytes: 1 << 30}, 400, 460, 461)
	segments, _, err := listSegments(Folder{Dir: dir})
	require.NoError(t, err)
	require.Len(t, segments, 3)
	require.NoError(t, os.Remove(filepath.Join(dir, segments[1].Name)))
	found, err := Verify(Folder{Dir: dir})
	require.NoError(t, err)
	require.Len(t, found.Damage, 1)
	require.Equal(t, segments[1].Name, found.Damage[0].Segment)
	require.Len(t, readAll(t, Folder{Dir: dir}), 401)
}

func TestWhatWasPurgedBeforeItWasKeptIsCountedAndNoted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stream := keepMany(t, dir, Config{Bytes: 1 << 30}, 20)
	stream.purged = 30
	for range 40 {
		stream.publish([]byte("message"))
	}
	a, err := Open(Folder{Dir: dir}, Config{Bytes: 1 << 30}, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer a.Close()
	lost, err := a.Keep(t.Context(), stream, 25)
	require.NoError(t, err)
	require.Zero(t, lost)
	lost, err = a.Keep(t.Context(), stream, 40)
	require.NoError(t, err)
	require.EqualValues(t, 10, lost)
	found, err := Verify(Folder{Dir: dir})
	require.NoError(t, err)
	require.Empty(t, found.Damage)
	require.Equal(t, []string{"messages 21 to 30 of the stream were purged before they were kept"}, found.Notes)
}

func TestAnotherStreamBeginsSegmentsOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keepMany(t, dir, Config{Bytes: 1 << 30}, 20)
	for _, life := range []Life{{Created: born, Losses: 1}, {Created: born.Add(time.Hour)}} {
		stream := &memoryStream{messages: map[uint64]Message{}}
		stream.publish([]byte("message"))
		a, err := Open(Folder{Dir: dir}, Config{Bytes: 1 << 30}, Owner{Run: "r"}, life, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.Zero(t, a.Last())
		_, err = a.Keep(t.Context(), stream, 1)
		require.NoError(t, err)
		require.NoError(t, a.Close())
	}
	n := 0
	for _, err := range All(Folder{Dir: dir}) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 22, n)
}

func TestTheOldestSegmentsGoFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stream := &memoryStream{messages: map[uint64]Message{}}
	noise := make([]byte, 100<<10)
	state := uint32(1)
	cfg := Config{Bytes: 2 << 20, Age: time.Hour}
	a, err := Open(Folder{Dir: dir}, cfg, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer a.Close()
	for range 40 {
		for i := range noise { // which does not compress
			state = state*1664525 + 1013904223
			noise[i] = byte(state >> 24)
		}
		stream.publish(bytes.Clone(noise))
		_, err := a.Keep(t.Context(), stream, stream.last)
		require.NoError(t, err)
		size := int64(0)
		for _, s := range a.segments {
			size += s.Size
		}
		require.LessOrEqual(t, size, int64(2<<20))
	}
	kept := slices.Sorted(maps.Keys(readAll(t, Folder{Dir: dir})))
	require.Greater(t, len(kept), 12)
	require.EqualValues(t, 40, kept[len(kept)-1])
	require.EqualValues(t, 40-len(kept)+1, kept[0], "the newest, without a gap")
	a.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	stream.publish([]byte("message"))
	_, err = a.Keep(t.Context(), stream, stream.last)
	require.NoError(t, err)
	require.Equal(t, []uint64{41}, slices.Collect(maps.Keys(readAll(t, Folder{Dir: dir}))))
}

func TestAFullDiskLeavesTheArchiveAsItWas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stream := keepMany(t, dir, Config{Bytes: 1 << 30}, 40, 60)
	before := readAll(t, Folder{Dir: dir})
	full := true
	store := &faultyStore{Folder: Folder{Dir: dir}, fault: func() string {
		if full {
			return "before"
		}
		return ""
	}}
	a, err := Open(store, Config{Bytes: 1 << 30}, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer a.Close()
	stream.publish([]byte("message"))
	_, err = a.Keep(t.Context(), stream, 61)
	require.ErrorIs(t, err, errDied)
	require.EqualValues(t, 60, a.Last())
	require.Equal(t, before, readAll(t, Folder{Dir: dir}))
	full = false
	_, err = a.Keep(t.Context(), stream, 61)
	require.NoError(t, err)
	require.Len(t, readAll(t, Folder{Dir: dir}), 61)
	// A folder that cannot be written, for the real thing: a file stands where it should be.
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	require.Error(t, Folder{Dir: blocked}.Put("x", nil))
}

func TestNamesOfSegments(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := place{rapid.Int64().Draw(t, "created"), rapid.Int64Range(0, 999999).Draw(t, "losses"), Span{}}
		p.After = rapid.Uint64Range(0, 1<<60).Draw(t, "after")
		p.Last = rapid.Uint64Range(p.After+1, 1<<61).Draw(t, "last")
		read, ok := parseName(p.segmentName())
		require.True(t, ok, p.segmentName())
		require.Equal(t, p, read)
	})
	for _, name := range []string{"", "x.seg", "000001.jsonl", "0-0-0-0.seg"} {
		_, ok := parseName(name)
		require.False(t, ok, name)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, Config{}.Validate())
	require.ErrorContains(t, Config{Bytes: 5}.Validate(), "bytes")
	require.ErrorContains(t, Config{Age: -1}.Validate(), "age")
	require.Contains(t, Config{}.Unread("age"), "bytes")
	require.Empty(t, Config{Bytes: 1 << 20}.Unread("age"))
}

// byteBlob is a Blob in memory.
type byteBlob struct{ *bytes.Reader }

func (byteBlob) Close() error { return nil }

type blobStore struct{ data []byte }

func (s blobStore) List() ([]Stored, error) {
	return []Stored{{place{1, 0, Span{0, 1}}.segmentName(), int64(len(s.data)), time.Time{}}}, nil
}

func (s blobStore) Open(string) (Blob, error)        { return byteBlob{bytes.NewReader(s.data)}, nil }
func (blobStore) Put(string, []byte) error           { return fs.ErrInvalid }
func (blobStore) Remove(string) error                { return nil }
func (blobStore) Sweep() error                       { return nil }
func (blobStore) Claim(string, bool) (string, error) { return "", fs.ErrInvalid }

// FuzzSegment reads anything as a segment: an error or messages, and never a panic or memory beyond the bounds.
func FuzzSegment(f *testing.F) {
	encoder, err := newEncoder()
	require.NoError(f, err)
	w := segmentWriter{encoder: encoder, index: Index{Life: Life{Created: time.Unix(0, 1)}, Span: Span{0, 1}}}
	w.addMessage(Message{Sequence: 1, Data: []byte("message")})
	whole, err := w.finishSegment()
	require.NoError(f, err)
	f.Add(whole)
	f.Add([]byte(magicBegin))
	f.Fuzz(func(t *testing.T, data []byte) {
		store := blobStore{data}
		for m, err := range All(store) {
			require.True(t, (m == nil) == (err != nil))
		}
		_, _ = Find(store, "x")
		_, err := Verify(store)
		require.NoError(t, err)
	})
}

func BenchmarkKeep(b *testing.B) {
	data := trajectoryBytes(b, "g000001-a0-0", 250)
	stream := &memoryStream{messages: map[uint64]Message{}}
	a, err := Open(Folder{Dir: b.TempDir()}, Config{Bytes: 1 << 30}, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
	require.NoError(b, err)
	defer a.Close()
	b.SetBytes(int64(256 * len(data)))
	for b.Loop() {
		for range 256 {
			stream.publish(data)
		}
		_, err := a.Keep(b.Context(), stream, stream.last)
		require.NoError(b, err)
		clear(stream.messages)
	}
}
