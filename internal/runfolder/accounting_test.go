package runfolder

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// madeRun is the record of a run that was made up, and, apart from Steps, what became of each ticket.
type madeRun struct {
	records []checkpoint.Record
	// fates are those of tickets: "trained", "refused/stale", ...; further counts messages beyond them.
	fates   map[string]string
	sources map[string]string
	further int
	size    int
}

func drawRun(t *rapid.T) *madeRun {
	s := &madeRun{fates: map[string]string{}, sources: map[string]string{}}
	size := rapid.IntRange(1, 5).Draw(t, "size")
	s.size = size
	sequence, cursor := uint64(0), uint64(0)
	type open struct {
		key     key
		source  string
		refused map[int]string
	}
	var going []open
	say := func(id, fate string) { s.fates[id] = fate }
	for step := range rapid.IntRange(1, 5).Draw(t, "steps") {
		r := checkpoint.Record{Step: int64(step)}
		for range rapid.IntRange(0, 4).Draw(t, "issued") {
			k := key{cursor, int32(rapid.IntRange(0, 2).Draw(t, "attempt"))}
			cursor++
			source := rapid.SampledFrom([]string{"", "math", "code"}).Draw(t, "source")
			going = append(going, open{k, source, map[int]string{}})
			for i := range size {
				s.sources[batch.TicketID(k.cursor, int(k.attempt), i)] = source
				say(batch.TicketID(k.cursor, int(k.attempt), i), "underway")
			}
		}
		var left []open
		for _, g := range going {
			id := func(i int) string { return batch.TicketID(g.key.cursor, int(g.key.attempt), i) }
			reject := func(i int, reason schemas.Reason) {
				sequence++
				r.Rejected = append(r.Rejected, checkpoint.RecordRejection{ID: id(i), Sequence: sequence, Reason: reason})
			}
			end := rapid.SampledFrom([]string{"open", "trained", "dropped"}).Draw(t, "end")
			group := checkpoint.RecordGroup{Group: g.key.groupID(), Size: size, Source: g.source}
			for i := range size {
				if g.refused[i] == "" {
					switch rapid.SampledFrom([]string{"fine", "fine", "stale", "lost", "silent"}).Draw(t, "sample") {
					case "stale":
						reject(i, schemas.ReasonStale)
						g.refused[i] = "refused/stale"
					case "lost":
						r.Rejected = append(r.Rejected, checkpoint.RecordRejection{ID: id(i), Reason: schemas.ReasonLost})
						g.refused[i] = "lost"
					case "silent":
						if end != "open" {
							g.refused[i] = "closed"
						}
					}
				}
				switch {
				case g.refused[i] != "":
					say(id(i), g.refused[i])
				case end == "trained":
					sequence++
					m := checkpoint.RecordMember{ID: id(i), Sequence: sequence, Reward: 1, PassedOver: rapid.Bool().Draw(t, "passed over")}
					fate := "trained"
					if m.PassedOver {
						fate = "passed_over"
					}
					if i == size-1 && rapid.Bool().Draw(t, "baseline") {
						m.PassedOver, fate = false, "baseline"
						group.Baseline = &m
					} else {
						group.Members = append(group.Members, m)
					}
					say(id(i), fate)
				case end == "dropped":
					reject(i, schemas.ReasonZeroVariance)
					say(id(i), "dropped/zero_variance")
				}
				if end != "open" && g.refused[i] != "closed" && rapid.IntRange(0, 5).Draw(t, "copy") == 0 {
					reject(i, schemas.ReasonDuplicate)
					s.further++
				}
			}
			switch end {
			case "trained":
				r.Groups = append(r.Groups, group)
			case "dropped":
				r.Dropped = append(r.Dropped, checkpoint.RecordDrop{Group: g.key.groupID(), Cursor: g.key.cursor, Reason: schemas.ReasonZeroVariance, Size: size, Source: g.source})
			default:
				left = append(left, g)
				r.AddOpen(g.key.groupID(), g.source)
			}
		}
		going = left
		if rapid.IntRange(0, 3).Draw(t, "stranger") == 0 {
			r.Rejected = append(r.Rejected, checkpoint.RecordRejection{ID: "somebody's", Sequence: 1 << 40, Reason: schemas.ReasonForeign})
			s.further++
		}
		s.records = append(s.records, r)
	}
	return s
}

// lines are a record's as they are written, without the chain.
func lines(t require.TestingT, records []checkpoint.Record) [][]byte {
	var out [][]byte
	for _, r := range records {
		line, err := json.Marshal(r)
		require.NoError(t, err)
		out = append(out, append(line, '\n'))
	}
	return out
}

// Invariant: the bars of the accounting sum to what was issued, and each counts the tickets that it names.
func TestInvariantTheAccountingSumsExactly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawRun(t)
		n++
		x := indexOf(t, filepath.Join(dir, fmt.Sprint(n)), s.records)
		want := map[string]int{}
		for _, fate := range s.fates {
			want[fate]++
		}
		a := x.Accounting(s.size)
		require.Equal(t, len(s.fates), a.Issued)
		left := a.Issued
		for _, b := range a.Bars {
			if b.Sum {
				require.Equal(t, left, b.Count, b.Label)
				continue
			}
			left -= b.Count
			require.Equal(t, left, b.Left, b.Label)
			name := b.Fate
			if b.Reason != "" {
				name += "/" + b.Reason
			}
			require.Equal(t, want[name], b.Count, name)
			q := Query{Fate: b.Fate, Reason: b.Reason, Step: -1, Limit: 500}
			require.GreaterOrEqual(t, x.List(q, s.size).Total, b.Count, "the bar leads to its trajectories")
			delete(want, name)
		}
		require.Equal(t, want["trained"], left)
		delete(want, "trained")
		delete(want, "underway")
		require.Empty(t, want, "fates without a bar")
		further := 0
		for _, k := range a.Further {
			further += k
		}
		require.Equal(t, s.further, further)
	})
}

func indexOf(t require.TestingT, dir string, records []checkpoint.Record) *Steps {
	require.NoError(t, os.MkdirAll(dir, 0o755))
	f, err := os.Create(filepath.Join(dir, checkpoint.RecordFile))
	require.NoError(t, err)
	for _, line := range lines(t, records) {
		_, err := f.Write(line)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	x := newSteps(dir)
	require.NoError(t, x.refreshSteps())
	return x
}

// What an index has read bit by bit, with the last line written anew and the run gone back in between, is what one has that reads the
// file as it ended.
func TestAnIndexFollowsTheRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawRun(t)
		n++
		at := filepath.Join(dir, fmt.Sprint(n))
		require.NoError(t, os.MkdirAll(at, 0o755))
		path := filepath.Join(at, checkpoint.RecordFile)
		x := newSteps(at)
		require.NoError(t, x.refreshSteps(), "there is no file yet")
		var written [][]byte
		for i, line := range lines(t, s.records) {
			switch rapid.SampledFrom([]string{"next", "next", "renew", "back", "half"}).Draw(t, "what") {
			case "renew":
				again := s.records[i]
				again.Rejected = append(again.Rejected, checkpoint.RecordRejection{ID: "g000000-a0-0", Sequence: 7, Reason: schemas.ReasonStale})
				write(t, path, append(written, line), nil)
				require.NoError(t, x.refreshSteps())
				line = lines(t, []checkpoint.Record{again})[0]
			case "back":
				written = written[:len(written)/2]
			case "half":
				write(t, path, written, line[:len(line)/2])
				require.NoError(t, x.refreshSteps())
			}
			written = append(written, line)
			write(t, path, written, nil)
			if rapid.Bool().Draw(t, "look") {
				require.NoError(t, x.refreshSteps())
			}
		}
		require.NoError(t, x.refreshSteps())
		fresh := newSteps(at)
		require.NoError(t, fresh.refreshSteps())
		require.Equal(t, append([]row{}, fresh.rows...), append([]row{}, x.rows...))
		require.Equal(t, append([]group{}, fresh.groups...), append([]group{}, x.groups...))
		require.Equal(t, append([]string{}, fresh.oddities...), append([]string{}, x.oddities...))
		require.Len(t, x.steps, len(fresh.steps))
	})
}

// write writes the lines, and a part of one after them. The time of the file is never that of before.
func write(t require.TestingT, path string, lines [][]byte, part []byte) {
	var all []byte
	for _, l := range lines {
		all = append(all, l...)
	}
	before, _ := os.Stat(path)
	require.NoError(t, os.WriteFile(path, append(all, part...), 0o644))
	if before != nil {
		at := before.ModTime().Add(1)
		require.NoError(t, os.Chtimes(path, at, at))
	}
}

func TestALineThatIsNoRecordIsCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := lines(t, []checkpoint.Record{{Step: 1, Groups: []checkpoint.RecordGroup{{Group: "g000000-a0", Size: 1, Members: []checkpoint.RecordMember{{ID: "g000000-a0-0"}}}}}})
	write(t, filepath.Join(dir, checkpoint.RecordFile), [][]byte{[]byte("{\"step\":\n"), good[0]}, nil)
	x := newSteps(dir)
	require.NoError(t, x.refreshSteps())
	require.Equal(t, 1, x.Unread())
	require.Equal(t, 1, x.Accounting(8).Issued)
}
