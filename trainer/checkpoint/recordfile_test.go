package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// recorded is a store with the record of four steps, and the record's bytes.
func recorded(t *testing.T) (s *Store, path string, data []byte) {
	t.Helper()
	dir := t.TempDir()
	s = open(t, dir)
	save(t, s, 0, 1, 2, 3)
	path = filepath.Join(dir, RecordFile)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return s, path, data
}

// Defect F9: a record that was removed, cut or changed was gone on from in silence.
func TestARecordThatLacksWhatTheCheckpointGoesOnFromIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string, data []byte) error{
		"removed": func(path string, _ []byte) error { return os.Remove(path) },
		"cut":     func(path string, data []byte) error { return os.Truncate(path, int64(bytes.IndexByte(data, '\n')+1)) },
		"another run's": func(path string, data []byte) error {
			other := bytes.ReplaceAll(data, []byte(`"next_cursor":4`), []byte(`"next_cursor":5`))
			lines := bytes.SplitAfter(other, []byte("\n"))
			plain, _ := cutChain(lines[2])
			lines[2] = append(plain, chainKey+lineChain("elsewhere", plain)+"\"}\n"...)
			return os.WriteFile(path, bytes.Join(lines, nil), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path, data := recorded(t)
			require.NoError(t, spoil(path, bytes.Clone(data)))
			_, _, err := s.Load()
			require.ErrorIs(t, err, ErrRecord)
			for _, part := range []string{path, s.Path(3), "put the file back from a copy", "leave an empty file"} {
				require.ErrorContains(t, err, part)
			}
			require.NoError(t, os.WriteFile(path, data, 0o644))
			_, _, err = s.Load()
			require.NoError(t, err, "put back")
		})
	}
}

func TestAnEmptyRecordIsGoneOnFromOnPurpose(t *testing.T) {
	t.Parallel()
	s, path, _ := recorded(t)
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	for range 2 { // killed before the next step, it starts again
		_, _, err := s.Load()
		require.NoError(t, err)
		records, err := ReadRecords(s.Dir())
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.EqualValues(t, 3, records[0].Step)
	}
	save(t, s, 4, 5)
	_, _, err := s.Load()
	require.NoError(t, err)
	records, err := ReadRecords(s.Dir())
	require.NoError(t, err)
	require.Len(t, records, 3)
}

// Step 1 is the first that somebody can leave an empty file at: its line names a chain that is gone.
func TestARecordMayBeginAtAnyStep(t *testing.T) {
	t.Parallel()
	for _, step := range []int64{1, 2, 7} {
		dir := t.TempDir()
		s := open(t, dir)
		save(t, s, step-1, step)
		require.NoError(t, os.WriteFile(filepath.Join(dir, RecordFile), nil, 0o644))
		_, _, err := s.Load()
		require.NoError(t, err)
		records, err := ReadRecords(dir)
		require.NoError(t, err, "step %d", step)
		require.Len(t, records, 1)
	}
}

// Nothing goes on from the first line, so that its record can be written again: at the first checkpoint, and at that of a
// build that did not note where the record stood.
func TestAMissingRecordOfTheFirstCheckpointIsWrittenAgain(t *testing.T) {
	t.Parallel()
	for _, tail := range []*Tail{nil, {}} {
		dir := t.TempDir()
		s := open(t, dir)
		save(t, s, 0)
		c, err := Read(s.Path(0), 0)
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(dir, RecordFile)))
		c.State.Records = tail
		repair(t, s, c)
		records, err := ReadRecords(dir)
		require.NoError(t, err)
		require.Equal(t, []Record{c.Record}, records)
	}
}

// All checkpoints were removed and the record was kept: a run that begins again adds to it.
func TestASaveWithoutACheckpointKeepsTheRecordThatIsThere(t *testing.T) {
	t.Parallel()
	s, _, data := recorded(t)
	for _, step := range []int64{2, 3} {
		require.NoError(t, os.RemoveAll(s.Path(step)))
	}
	require.NoError(t, s.Close())
	again := open(t, s.Dir())
	c, _, err := again.Load()
	require.NoError(t, err)
	require.Nil(t, c)
	save(t, again, 0)
	now, err := os.ReadFile(filepath.Join(s.Dir(), RecordFile))
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(now, data), "the lines of before")
	records, err := ReadRecords(s.Dir())
	require.NoError(t, err)
	require.Len(t, records, 5)
}

func TestAStepUsesItsBaselineUpToo(t *testing.T) {
	t.Parallel()
	g := RecordGroup{Members: []RecordMember{{ID: "a"}, {ID: "b"}}}
	require.Equal(t, g.Members, g.Used())
	g.Baseline = &RecordMember{ID: "c"}
	require.Equal(t, []RecordMember{{ID: "a"}, {ID: "b"}, {ID: "c"}}, g.Used())
	require.Len(t, g.Members, 2)
}

func TestARecordCutWhileTheTrainerRunsEndsIt(t *testing.T) {
	t.Parallel()
	s, path, _ := recorded(t)
	require.NoError(t, os.Truncate(path, 10))
	require.ErrorIs(t, s.Save(t.Context(), sample(4)), ErrRecord)
}

// Defect P16: a start and a renew read the whole record.
func TestAStartReadsNoOlderLines(t *testing.T) {
	t.Parallel()
	s, path, data := recorded(t)
	noise := bytes.Repeat([]byte("?"), bytes.IndexByte(data, '\n'))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(noise, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	c, _, err := s.Load()
	require.NoError(t, err, "a start asks for the end of the record alone")
	c.Policy = sample(c.State.Step).Policy
	require.NoError(t, s.Renew(t.Context(), c))
	_, err = ReadRecords(s.Dir())
	require.ErrorContains(t, err, "line 1", "a reader of all finds it")
}

// Defect F9: nothing noticed a line that was changed.
func TestALineThatWasChangedIsNamed(t *testing.T) {
	t.Parallel()
	s, path, data := recorded(t)
	changed := bytes.Replace(data, []byte(`"reward":1`), []byte(`"reward":2`), 1)
	require.NotEqual(t, data, changed)
	require.NoError(t, os.WriteFile(path, changed, 0o644))
	lines := 0
	var damage []*Damage
	for _, err := range Records(s.Dir()) {
		lines++
		if err != nil {
			d := &Damage{}
			require.ErrorAs(t, err, &d)
			damage = append(damage, d)
		}
	}
	require.Equal(t, 4, lines)
	require.Len(t, damage, 1)
	require.Contains(t, damage[0].Want, "line 2, step 1,")

	without := bytes.SplitAfter(data, []byte("\n"))
	require.NoError(t, os.WriteFile(path, bytes.Join(append(without[:1:1], without[2:]...), nil), 0o644))
	_, err := ReadRecords(s.Dir())
	require.ErrorContains(t, err, "line 2, step 2,", "a line was taken out")
}

// A line cannot be changed by leaving its chain out, nor the first line by giving it any chain.
func TestALineWhoseChainWasRemovedOrMadeUpIsNamed(t *testing.T) {
	t.Parallel()
	s, path, data := recorded(t)
	for number, change := range map[int]func(plain []byte) string{
		3: func(plain []byte) string { return string(plain) + "}\n" },
		1: func(plain []byte) string { return string(plain) + chainKey + lineChain("elsewhere", plain) + "\"}\n" },
	} {
		lines := bytes.SplitAfter(data, []byte("\n"))
		plain, _ := cutChain(lines[number-1])
		lines[number-1] = []byte(change(plain))
		require.NoError(t, os.WriteFile(path, bytes.Join(lines, nil), 0o644))
		_, err := ReadRecords(s.Dir())
		require.ErrorContains(t, err, fmt.Sprintf("line %d, step %d,", number, number-1))
	}
}

// Defect S1: an error of the disk was taken for the end of the record, and all after it was cut.
func TestAReadErrorIsNotTheEndOfTheRecord(t *testing.T) {
	t.Parallel()
	_, _, data := recorded(t)
	broken := errors.New("input/output error")
	for cut := range data {
		in := io.MultiReader(bytes.NewReader(data[:cut]), iotest.ErrReader(broken))
		err := scanLines(in, func(int, *Record, int64, error) bool { return true })
		require.ErrorIs(t, err, broken, "after %d bytes", cut)
	}
}

// A checkpoint of an earlier build says nothing of the record, and its lines have no chain.
func TestARecordWithoutChainsIsGoneOnFrom(t *testing.T) {
	t.Parallel()
	s, path, data := recorded(t)
	var plain []byte
	for line := range bytes.Lines(data) {
		head, _ := cutChain(line)
		plain = append(append(plain, head...), "}\n"...)
	}
	require.NoError(t, os.WriteFile(path, plain, 0o644))
	c, err := Read(s.Path(3), 3)
	require.NoError(t, err)
	c.State.Records = nil
	repair(t, s, c)
	save(t, s, 4)
	records, err := ReadRecords(s.Dir())
	require.NoError(t, err)
	require.Len(t, records, 5)
	require.Empty(t, records[2].Chain)
	require.NotEmpty(t, records[3].Chain)
	_, _, err = s.Load()
	require.NoError(t, err)
}

// repair makes the record end with the line of a checkpoint, as Load does.
func repair(t *testing.T, s *Store, c *Checkpoint) {
	t.Helper()
	tail, err := s.findTail(c)
	require.NoError(t, err)
	require.NoError(t, s.writeRecord(tail, &c.Record))
}
