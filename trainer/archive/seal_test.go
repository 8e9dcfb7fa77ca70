package archive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// writeArchive writes an archive of two segments, as a trainer and its successor do.
func writeArchive(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for step := range int64(2) {
		w, err := Open(dir, Config{Bytes: minBytes, Samples: -1}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		none := func(uint64) Origin { return Origin{} }
		for k := range int64(3) {
			w.End(trajectory(uint64(9+k), 0), 18, Origin{}, schemas.ReasonZeroVariance, "all equal", 3*step+k+1, noon)
			b := batchOf(uint64(k))
			w.Step(3*step+k+1, b, tokensOf(b), none, noon)
		}
		require.NoError(t, w.Close())
	}
	return dir
}

// Invariant: a flipped bit anywhere in a segment of the archive is found, and its file is named.
func TestInvariantAFlippedBitInTheArchiveIsFound(t *testing.T) {
	t.Parallel()
	dir := writeArchive(t)
	found, err := Verify(dir)
	require.NoError(t, err)
	require.Empty(t, found.Faults)
	require.Empty(t, found.Open)
	require.Equal(t, 2, found.Segments)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 4)
	whole := map[string][]byte{}
	total := int64(0)
	for _, f := range files {
		whole[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
		total += int64(len(whole[f.Name()]))
	}
	require.Equal(t, total, found.Bytes, "each byte is read")
	rapid.Check(t, func(rt *rapid.T) {
		name := files[rapid.IntRange(0, len(files)-1).Draw(rt, "file")].Name()
		at := rapid.IntRange(0, len(whole[name])-1).Draw(rt, "at")
		changed := bytes.Clone(whole[name])
		changed[at] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		path := filepath.Join(dir, name)
		require.NoError(rt, os.WriteFile(path, changed, 0o644))
		found, err := Verify(dir)
		require.NoError(rt, err)
		require.NoError(rt, os.WriteFile(path, whole[name], 0o644))
		require.Len(rt, found.Faults, 1)
		require.Contains(rt, found.Faults[0].File, name)
		require.NotEqual(rt, found.Faults[0].Want, found.Faults[0].Have)
	})
}

// A seal that names more bytes than there can be is a fault: as much memory was asked for, and the verification crashed.
func TestASealOfMoreBytesThanThereCanBeIsFound(t *testing.T) {
	t.Parallel()
	dir := writeArchive(t)
	path := linesPath(dir, 1)
	for _, end := range []int64{1 << 62, 1 << 40} {
		require.NoError(t, os.WriteFile(path, encodeSeal(seal{Step: 1, End: end}), 0o644))
		found, err := Verify(dir)
		require.NoError(t, err)
		require.Equal(t, []Fault{{filepath.Base(path), -1, "line 1 as it was written", fmt.Sprintf("a frame of %d bytes", end)}}, found.Faults)
	}
}

// What a crash cuts off is no change, and is named as what no seal covers.
func TestWhatACrashCutsOffIsNoChange(t *testing.T) {
	t.Parallel()
	dir := writeArchive(t)
	path := linesPath(dir, 2)
	lines, err := os.ReadFile(path)
	require.NoError(t, err)
	last := bytes.LastIndex(lines[:len(lines)-1], []byte("\n")) + 1 // where the last seal begins
	for _, cut := range []int{1, 2, 40, len(lines) - last, len(lines) - last + 30} {
		require.NoError(t, os.WriteFile(path, lines[:len(lines)-cut], 0o644))
		found, err := Verify(dir)
		require.NoError(t, err)
		require.Empty(t, found.Faults, cut)
		require.Equal(t, []string{"000002.jsonl"}, found.Open, cut)
	}
	writePart(t, dir, 9) // the trainer after the crash
	found, err := Verify(dir)
	require.NoError(t, err)
	require.Empty(t, found.Faults)
	require.NoError(t, os.Remove(linesPath(dir, 3)))
	require.NoError(t, os.Remove(binPath(dir, 3)))
	require.NoError(t, os.WriteFile(path, lines, 0o644))
	require.NoError(t, os.Remove(binPath(dir, 2)))
	found, err = Verify(dir)
	require.NoError(t, err)
	require.Equal(t, []Fault{{"000002.bin", -1, "the file beside 000002.jsonl", "no such file"}}, found.Faults)
	require.NoError(t, os.Rename(linesPath(dir, 2), linesPath(dir, 3)))
	require.NoError(t, os.WriteFile(binPath(dir, 3), nil, 0o644))
	found, err = Verify(dir)
	require.NoError(t, err)
	require.Equal(t, "000002.jsonl", found.Faults[0].File)
}

// writePart has a trainer begin, write a step and end.
func writePart(t *testing.T, dir string, step int64) {
	t.Helper()
	w, err := Open(dir, Config{Bytes: minBytes, Samples: -1}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	b := batchOf(uint64(step))
	w.Step(step, b, tokensOf(b), func(uint64) Origin { return Origin{} }, noon)
	require.NoError(t, w.Close())
}

// A low finding of the eighth reader: the end of an older segment could be cut off at a seal, or all of its lines, and nothing told.
func TestACutEndOfAnOlderSegmentIsFound(t *testing.T) {
	t.Parallel()
	dir := writeArchive(t)
	writePart(t, dir, 9)
	for segment := 1; segment <= 2; segment++ {
		path := linesPath(dir, segment)
		lines, err := os.ReadFile(path)
		require.NoError(t, err)
		for i, b := range lines[:len(lines)-1] {
			if b != '\n' {
				continue
			}
			require.NoError(t, os.WriteFile(path, lines[:i+1], 0o644))
			found, err := Verify(dir)
			require.NoError(t, err)
			if len(found.Faults) == 0 {
				// No seal is left of the first segment: nothing says that there was one.
				require.Equal(t, 1, segment)
				require.NotContains(t, string(lines[:i+1]), `{"seal":`)
				continue
			}
			require.Len(t, found.Faults, 1)
			require.Equal(t, filepath.Base(path), found.Faults[0].File)
			require.Contains(t, found.Faults[0].Have, "its end is gone")
		}
		require.NoError(t, os.WriteFile(path, lines, 0o644))
	}
}

// The last seal is found behind lines that no seal covers, however many, and behind a line that a crash cut.
func TestTheLastSealOfASegmentIsFound(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "000001.jsonl")
	entry := []byte(`{"id":"g000001-a0-0","answer":"` + strings.Repeat("x", 900) + `"}` + "\n")
	for _, behind := range []int{0, 1, 70, 500} {
		lines := append(bytes.Repeat(entry, 3), encodeSeal(seal{Step: 4, End: 9, Chain: "abc"})...)
		lines = append(append(lines, bytes.Repeat(entry, behind)...), `{"seal":{"step":5`...)
		require.NoError(t, os.WriteFile(path, lines, 0o600))
		chain, err := lastChain(filepath.Dir(path), []int{1, 2})
		require.NoError(t, err)
		require.Equal(t, "abc", chain, behind)
	}
	require.NoError(t, os.WriteFile(path, bytes.Repeat(entry, 200), 0o600))
	chain, err := lastChain(filepath.Dir(path), []int{1})
	require.NoError(t, err)
	require.Empty(t, chain)
}

// A part that could not be written leaves nothing that the next part follows.
func TestAPartThatCouldNotBeWrittenLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(dir, minBytes)
	require.NoError(t, err)
	add := func(step int64) error {
		return s.addPart(Config{}, &part{step: step, at: noon, used: usedOf(batchOf(1))})
	}
	require.NoError(t, add(1))
	writes := s.lines
	s.lines, err = os.Open(writes.Name()) // which refuses writes, as a full disk does
	require.NoError(t, err)
	require.Error(t, add(2))
	require.NoError(t, s.lines.Close())
	s.lines = writes
	require.NoError(t, add(3))
	require.NoError(t, s.closeStore())
	found, err := Verify(dir)
	require.NoError(t, err)
	require.Empty(t, found.Faults)
	entries, _ := entriesOf(t, dir)
	require.Len(t, entries, 4)
	require.EqualValues(t, 3, entries[3].Step)
}

// A low finding of earlier readers: the end of the newest segment could be cut off at a seal, and nothing told. Bytes that are left over in
// a file are named; where both files are cut the step of the last seal tells.
func TestACutEndOfTheNewestSegmentIsTold(t *testing.T) {
	t.Parallel()
	dir := writeArchive(t)
	found, err := Verify(dir)
	require.NoError(t, err)
	require.EqualValues(t, 6, found.Last)
	path := linesPath(dir, 2)
	lines, err := os.ReadFile(path)
	require.NoError(t, err)
	cuts := 0
	for at, line := 0, []byte(nil); at < len(lines); at += len(line) {
		line = lines[at : at+bytes.IndexByte(lines[at:], '\n')+1]
		var l sealLine
		require.NoError(t, json.Unmarshal(line, &l))
		if l.Seal == nil || l.Seal.Step == 6 {
			continue
		}
		cuts++
		require.NoError(t, os.WriteFile(path, lines[:at+len(line)], 0o644))
		found, err := Verify(dir)
		require.NoError(t, err)
		require.Empty(t, found.Faults)
		require.Equal(t, []string{"000002.jsonl"}, found.Open)
		require.Equal(t, l.Seal.Step, found.Last)
	}
	require.Equal(t, 2, cuts)
}
