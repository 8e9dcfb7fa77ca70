package archive

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/learner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// trajectory is one of two segments, of which the first has no sampled token.
func trajectory(cursor uint64, sample int) *schemas.Trajectory {
	id := batch.TicketID(cursor, 0, sample)
	return &schemas.Trajectory{
		Run: "demo", ID: id, Group: batch.GroupID(cursor, 0), Cursor: cursor, Sample: sample, GroupSize: 2, Task: "library", PromptID: "p", Source: "1-hop",
		Producer: "p-1", Reward: 1, Rewards: map[string]float64{"exact_match": 1}, Answer: "356", Stop: schemas.StopAnswer, StartedAt: noon, FinishedAt: noon.Add(time.Second),
		Segments: []schemas.Segment{
			{Tokens: schemas.Int32s{1, 2}, ActionMask: schemas.Bytes{0, 0}, Logprobs: schemas.Float32s{0, 0}, Versions: schemas.Runs{-1, -1}, Temperature: 1},
			{Tokens: schemas.Int32s{1, 2, 3, 4}, ActionMask: schemas.Bytes{0, 1, 1, 0}, Logprobs: schemas.Float32s{0, -1, -2, 0}, Versions: schemas.Runs{-1, 3, 4, -1}, Temperature: 1},
		},
		Turns: []schemas.Turn{{Segment: 1, Start: 1, End: 3, Calls: []schemas.ToolCall{{Tool: "search", Arguments: "x", Duration: 20 * time.Millisecond}}}},
	}
}

// batchOf is a batch of groups of two.
func batchOf(cursors ...uint64) *batch.Batch {
	b := &batch.Batch{}
	for _, c := range cursors {
		g := batch.Taken{Group: batch.Group{Cursor: c, Size: 2}}
		for s := range 2 {
			g.Members = append(g.Members, batch.Member{Sequence: c*2 + uint64(s), Trajectory: trajectory(c, s), Return: float64(s)})
		}
		b.Groups = append(b.Groups, g)
	}
	return b
}

// tokensOf are numbers that tell where they belong.
func tokensOf(b *batch.Batch) *learner.Tokens {
	rows := batch.NewRows(b)
	t := &learner.Tokens{Rows: rows}
	for i := range rows.Tokens {
		t.Advantages, t.Start, t.Last = append(t.Advantages, float64(i)), append(t.Start, -float64(i)), append(t.Last, float64(i)/2)
	}
	return t
}

func entriesOf(t *testing.T, dir string) (out []Entry, segment []int) {
	t.Helper()
	numbers, err := Segments(dir)
	require.NoError(t, err)
	for _, n := range numbers {
		lines, _, err := ReadLines(dir, n, 0)
		require.NoError(t, err)
		for line := range bytes.Lines(lines) {
			var e Entry
			require.NoError(t, json.Unmarshal(line, &e))
			if e.ID == "" {
				continue // a seal
			}
			out, segment = append(out, e), append(segment, n)
		}
	}
	return out, segment
}

func TestWhatEndsIsArchived(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := Open(dir, Config{Bytes: minBytes, Samples: 3}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	originOf := func(sequence uint64) Origin {
		return Origin{Question: strings.Repeat("where ", 50), Accepted: []string{"356", "three"}, Issued: noon.Add(-time.Minute), Came: noon.Add(time.Duration(sequence) * time.Second)}
	}
	w.End(trajectory(9, 0), 18, originOf(18), schemas.ReasonZeroVariance, "all equal", 1, noon)
	b := batchOf(0, 1, 2)
	b.Groups[2].Members[1].PassedOver = true
	baseline := batch.Member{Sequence: 7, Trajectory: trajectory(2, 2)}
	b.Groups[2].Baseline = &baseline
	w.Step(1, b, tokensOf(b), originOf, noon)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "again")

	entries, segments := entriesOf(t, dir)
	require.Len(t, entries, 8)
	dropped := entries[0]
	require.Equal(t, FateRejected, dropped.Fate)
	require.Equal(t, schemas.ReasonZeroVariance, dropped.Reason)
	require.Equal(t, []int64{3, 1, 4, 1, ToolSpan, 20}, dropped.Spans)
	require.Equal(t, noon.Add(-time.Minute).UnixMilli(), dropped.Issued)
	require.Equal(t, strings.Repeat("where ", 33)+"wh…", dropped.Question, "the beginning of the question")
	require.Equal(t, "356 | three", dropped.Accepted)
	whole, err := ReadTrajectory(dir, segments[0], &dropped)
	require.NoError(t, err)
	require.Equal(t, trajectory(9, 0), whole)

	fates := map[string]int{}
	row := 0 // each row has four tokens
	for i, e := range entries[1:] {
		fates[e.Fate]++
		if e.Fate != FateTrained {
			require.Nil(t, e.Frame, "nothing was computed for it")
			continue
		}
		if row >= 4 { // three samples and the rest of their group
			require.Nil(t, e.Frame)
			row++
			continue
		}
		numbers, err := ReadNumbers(dir, segments[i], &e)
		require.NoError(t, err)
		at := float32(row * 4)
		require.Equal(t, []Numbers{{Segment: 1, Advantages: []float32{0, at + 1, at + 2, 0}, Start: []float32{0, -at - 1, -at - 2, 0}, Last: []float32{0, (at + 1) / 2, (at + 2) / 2, 0}}}, numbers)
		row++
	}
	require.Equal(t, map[string]int{FateTrained: 5, FatePassedOver: 1, FateBaseline: 1}, fates)
}

// Invariant: the archive stays within its bound, and its newest lines are there.
func TestInvariantTheArchiveStaysWithinItsBound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const bound = 64 << 10 // smaller than a configuration may ask for
	s, err := openStore(dir, bound)
	require.NoError(t, err)
	for step := range 400 {
		b := batchOf(uint64(step), uint64(step)+1000)
		require.NoError(t, s.addPart(Config{Samples: -1}, &part{step: int64(step), at: noon, used: usedOf(b), tokens: tokensOf(b)}))
	}
	require.NoError(t, s.closeStore())
	total := int64(0)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		total += info.Size()
	}
	require.LessOrEqual(t, total, int64(bound+bound/segmentCount+8<<10), "one part more than the bound at most")
	require.Greater(t, total, int64(bound/2))
	entries, _ := entriesOf(t, dir)
	require.Equal(t, int64(399), entries[len(entries)-1].Step)
	require.Positive(t, entries[0].Step, "the oldest are gone")

	// A process that goes on writes to a segment of its own.
	before, err := Segments(dir)
	require.NoError(t, err)
	s, err = openStore(dir, bound)
	require.NoError(t, err)
	require.NoError(t, s.addPart(Config{}, &part{step: 400, at: noon, used: usedOf(batchOf(1))}))
	require.NoError(t, s.closeStore())
	after, err := Segments(dir)
	require.NoError(t, err)
	require.Equal(t, before[len(before)-1]+1, after[len(after)-1])
}

func usedOf(b *batch.Batch) (out []usedMember) {
	for g, taken := range b.Groups {
		for _, m := range taken.Members {
			out = append(out, usedMember{member: m, group: g})
		}
	}
	return out
}

// What the writer cannot keep up with is left out and counted, and nobody waits.
func TestAWriterThatIsBehindHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := &Writer{cfg: Config{Samples: 1}, parts: make(chan *part, 1), gathering: &part{}}
	for step := range 5 { // nobody reads
		w.Step(int64(step), batchOf(0), nil, func(uint64) Origin { return Origin{} }, noon)
	}
	require.Equal(t, 8, w.skipped)
	require.Len(t, (<-w.parts).used, 2)
	w.Step(6, batchOf(0), nil, func(uint64) Origin { return Origin{} }, noon)
	require.Equal(t, 8, (<-w.parts).skipped)
	require.Zero(t, w.skipped)
}

func TestNothingIsKeptWhereNothingIsToBe(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "archive")
	w, err := Open(dir, Config{}, nil)
	require.NoError(t, err)
	require.Nil(t, w)
	w.End(trajectory(0, 0), 1, Origin{}, schemas.ReasonStale, "", 1, noon)
	w.Step(1, batchOf(0), nil, nil, noon)
	require.NoError(t, w.Close())
	require.NoDirExists(t, dir)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
	err := Config{Bytes: 5, Samples: -2}.Validate()
	require.ErrorContains(t, err, "bytes: 5")
	require.ErrorContains(t, err, "samples: -2")
}

// A line cut short by a crash is not read, and what it would have pointed at is told to be gone.
func TestACrashLosesTheNewestLinesAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := Open(dir, Config{Bytes: minBytes, Samples: -1}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	b := batchOf(0)
	w.Step(1, b, tokensOf(b), func(uint64) Origin { return Origin{} }, noon)
	require.NoError(t, w.Close())
	entries, segments := entriesOf(t, dir)
	lines, err := os.ReadFile(linesPath(dir, 1))
	require.NoError(t, err)
	lines = lines[:bytes.LastIndex(lines, []byte(`{"seal"`))]
	require.NoError(t, os.WriteFile(linesPath(dir, 1), lines[:len(lines)-3], 0o644))
	require.NoError(t, os.Truncate(binPath(dir, 1), 5))
	left, _ := entriesOf(t, dir)
	require.Equal(t, entries[:1], left)
	_, err = ReadNumbers(dir, segments[0], &entries[0])
	require.ErrorIs(t, err, ErrGone)
	require.NoError(t, os.Remove(binPath(dir, 1)))
	_, err = ReadNumbers(dir, segments[0], &entries[0])
	require.ErrorIs(t, err, ErrGone)
}

// A line that points outside of its frame, as in a stranger's folder, has no data.
func TestALineThatPointsElsewhereHasNoData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := Open(dir, DefaultConfig(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	b := batchOf(1)
	w.Step(1, b, tokensOf(b), func(uint64) Origin { return Origin{} }, noon)
	require.NoError(t, w.Close())
	lines, _, err := ReadLines(dir, 1, 0)
	require.NoError(t, err)
	var e Entry
	require.NoError(t, json.Unmarshal(lines[:bytes.IndexByte(lines, '\n')], &e))
	_, err = ReadNumbers(dir, 1, &e)
	require.NoError(t, err)
	for _, place := range [][2]int{{math.MaxInt, 1}, {0, math.MaxInt}, {math.MaxInt - 1, math.MaxInt}, {e.At + e.Size, 1 << 30}, {-1, 2}, {0, -1}} {
		wrong := e
		wrong.At, wrong.Size = place[0], place[1]
		_, err := ReadNumbers(dir, 1, &wrong)
		require.ErrorIs(t, err, ErrGone, place)
	}
}

func FuzzReadNumbers(f *testing.F) {
	b := batchOf(0)
	f.Add(appendNumbers(nil, tokensOf(b), []int{0}, []int{1}))
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		numbers, err := readNumbers(data)
		if err != nil {
			return
		}
		for _, n := range numbers {
			require.Len(t, n.Start, len(n.Advantages))
		}
	})
}

func TestTextIsClippedAtACharacter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		most := rapid.IntRange(1, 20).Draw(t, "most")
		got := clipText(text, most)
		require.LessOrEqual(t, len(got), max(most+len("…"), len(text)))
		require.True(t, utf8.ValidString(got))
		if len(text) <= most && utf8.ValidString(text) {
			require.Equal(t, text, got)
		}
	})
}

// BenchmarkStep is what the archive costs a step of 16 groups of 8, of 40 tokens each, beside the same number dropped: all on the
// archive's own goroutine but for the gathering.
func BenchmarkStep(b *testing.B) {
	s, err := openStore(b.TempDir(), 128<<20)
	require.NoError(b, err)
	long := func(cursor uint64, sample int) *schemas.Trajectory {
		t := trajectory(cursor, sample)
		seg := &t.Segments[1]
		for len(seg.Tokens) < 40 {
			seg.Tokens, seg.ActionMask, seg.Logprobs, seg.Versions = append(seg.Tokens, 5), append(seg.ActionMask, byte(len(seg.Tokens)%2)), append(seg.Logprobs, -0.3), append(seg.Versions, 3)
		}
		return t
	}
	of := &batch.Batch{}
	p := &part{step: 1, at: noon}
	for c := range uint64(16) {
		g := batch.Taken{Group: batch.Group{Cursor: c, Size: 8}}
		for i := range 8 {
			g.Members = append(g.Members, batch.Member{Trajectory: long(c, i)})
			p.others = append(p.others, unusedTrajectory{trajectory: long(c+100, i), reason: schemas.ReasonZeroVariance, at: noon})
		}
		of.Groups = append(of.Groups, g)
	}
	p.used, p.tokens = usedOf(of), tokensOf(of)
	for b.Loop() {
		require.NoError(b, s.addPart(Config{Samples: 64}, p))
	}
}
