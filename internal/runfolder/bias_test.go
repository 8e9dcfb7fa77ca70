package runfolder

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/trainer/archive"
)

func drawArchive(t *rapid.T) *Archive {
	f := newArchive("")
	for i := range rapid.IntRange(0, 60).Draw(t, "n") {
		started := rapid.Int64Range(2, 1000).Draw(t, "started")
		finished := started + rapid.Int64Range(0, 100).Draw(t, "took")
		e := archive.Entry{
			ID: key{uint64(i), 0}.groupID() + "-0", Fate: archive.FateTrained, Producer: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "producer"), Tokens: int(finished),
			Issued: started - 1, Started: started, Finished: finished, Ended: finished + 5, Spans: []int64{3, 4, archive.ToolSpan, rapid.Int64Range(0, finished-started).Draw(t, "tools")},
			Source: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "source"),
		}
		if rapid.Bool().Draw(t, "refused") {
			e.Fate, e.Reason = archive.FateRejected, "stale"
		}
		f.all = append(f.all, archived{Entry: e, segment: 1})
		f.noteNewest(&f.all[len(f.all)-1], int32(len(f.all)-1))
	}
	return f
}

func TestBiasCountsEachTrajectoryOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawArchive(t)
		b := f.Bias()
		require.Equal(t, len(f.all), b.Came)
		came, trained, late := 0, 0, 0
		for _, s := range b.Sources {
			require.Equal(t, s.Came, s.Trained+s.Flat+s.Late+s.Else)
			came, trained, late = came+s.Came, trained+s.Trained, late+s.Late
		}
		require.Equal(t, b.Came, came)
		require.Equal(t, b.Trained, trained)
		require.Equal(t, b.Came-b.Trained, late)
	})
}

// Refusing what is slow is seen, and alarms.
func TestABiasIsSeen(t *testing.T) {
	t.Parallel()
	f := newArchive("")
	for i := range 400 {
		e := archive.Entry{ID: key{uint64(i), 0}.groupID() + "-0", Fate: archive.FateTrained, Started: 1, Finished: int64(1 + i), Tokens: 10}
		if i > 200 {
			e.Fate, e.Reason = archive.FateRejected, "stale"
		}
		f.all = append(f.all, archived{Entry: e, segment: 1})
		f.noteNewest(&f.all[i], int32(i))
	}
	b := f.Bias()
	require.Contains(t, b.Alarm, "duration")
	require.InDelta(t, 0.5, b.Of[1].KS, 0.01)
	require.Less(t, b.Of[1].P, 1e-9)
	require.Zero(t, b.Of[0].KS)
	require.Equal(t, []BiasCause{{Reason: "stale", Came: 199, Length: 10, Duration: 0.3}}, b.Causes)
	require.Equal(t, "duration", b.Sources[0].Differs)
	require.Empty(t, b.Tasks, "a single task")
}
