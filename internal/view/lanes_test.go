package view

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
)

// withArchive opens a run whose archive has these entries.
func withArchive(t require.TestingT, dir string, entries []archive.Entry) *shownRun {
	var lines []byte
	for i := range entries {
		line, err := json.Marshal(&entries[i])
		require.NoError(t, err)
		lines = append(append(lines, line...), '\n')
	}
	at := filepath.Join(dir, runfolder.CheckpointsFolder, archive.Folder)
	require.NoError(t, os.MkdirAll(at, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(at, "000001.jsonl"), lines, 0o644))
	r := openRun(Run{Run: runfolder.Run{Name: "demo", Dir: dir}})
	require.NoError(t, r.folder.Refresh())
	return r
}

func drawEntries(t *rapid.T) []archive.Entry {
	var all []archive.Entry
	for i := range rapid.IntRange(0, 60).Draw(t, "n") {
		started := rapid.Int64Range(2, 1000).Draw(t, "started")
		finished := started + rapid.Int64Range(0, 100).Draw(t, "took")
		all = append(all, archive.Entry{
			ID: batch.TicketID(uint64(i), 0, 0), Fate: archive.FateTrained, Producer: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "producer"), Tokens: int(finished),
			Issued: started - 1, Started: started, Finished: finished, Ended: finished + 5, Spans: []int64{3, 4, archive.ToolSpan, rapid.Int64Range(0, finished-started).Draw(t, "tools")},
		})
	}
	return all
}

// Invariant: rollouts of one lane do not overlap, and each is in a lane of its producer's.
func TestInvariantRolloutsOfOneLaneDoNotOverlap(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		entries := drawEntries(t)
		n++
		l := withArchive(t, filepath.Join(dir, strconv.Itoa(n)), entries).layOutLanes(0, 0)
		require.False(t, l.More)
		lanes := map[int][]LaneBar{}
		owner := map[int]string{}
		at := 0
		for _, p := range l.Producers {
			for range p.Lanes {
				owner[at] = p.Name
				at++
			}
			require.LessOrEqual(t, p.Busy, 1.0001)
		}
		shown, producers := 0, map[string]string{}
		for _, e := range entries {
			producers[e.ID] = e.Producer
			if e.Ended >= l.From {
				shown++
			}
		}
		require.Len(t, l.Bars, shown)
		for _, b := range l.Bars {
			require.Equal(t, producers[b.ID], owner[b.Lane])
			lanes[b.Lane] = append(lanes[b.Lane], b)
		}
		for _, of := range lanes {
			slices.SortFunc(of, func(a, b LaneBar) int { return int(a.Started - b.Started) })
			for i := 1; i < len(of); i++ {
				require.LessOrEqual(t, of[i-1].Finished, of[i].Started)
			}
		}
		n := int64(len(l.Bars))
		require.Equal(t, n, l.Ages.Queue)
		require.Equal(t, 5*n, l.Ages.Waiting)
	})
}

func TestAStretchIsCutAtTheNewest(t *testing.T) {
	t.Parallel()
	var entries []archive.Entry
	for i := range maxBars + 10 {
		entries = append(entries, archive.Entry{ID: batch.TicketID(uint64(i), 0, 0), Started: 1, Finished: 2, Ended: int64(i + 2)})
	}
	l := withArchive(t, t.TempDir(), entries).layOutLanes(0, 0)
	require.True(t, l.More)
	require.Len(t, l.Bars, maxBars)
}

func TestABadStretchIsRefused(t *testing.T) {
	t.Parallel()
	for _, v := range []map[string][]string{{"from": {"x"}}, {"from": {"-1"}}, {"from": {"5"}, "to": {"5"}}} {
		_, _, err := parseStretch(v)
		require.Error(t, err, "%v", v)
	}
}
