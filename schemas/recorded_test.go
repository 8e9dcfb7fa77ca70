package schemas

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The recorded trajectory that answers a ticket is on the wire where there is one; without it the bytes are those of before.
func TestARecordedAnswerNamesItsTrajectory(t *testing.T) {
	sent := sampleTrajectory()
	plain, err := Marshal(sent)
	require.NoError(t, err)
	require.Equal(t, golden(t, KindTrajectory), plain)
	sent.Recorded = &Recorded{Run: "run-0", ID: "g7-0-2", Oldest: 3, Newest: 5}
	require.NoError(t, sent.Validate())
	data, err := Marshal(sent)
	require.NoError(t, err)
	got := new(Trajectory)
	require.NoError(t, Unmarshal(data, got))
	require.Equal(t, sent, got)

	for name, c := range map[string]struct {
		spoil func(*Recorded)
		fault string
	}{
		"no run":          {func(r *Recorded) { r.Run = "" }, "trajectory.recorded.run: must not be empty"},
		"no id":           {func(r *Recorded) { r.ID = "" }, "trajectory.recorded.id: must not be empty"},
		"newer than last": {func(r *Recorded) { r.Oldest = 6 }, "trajectory.recorded.newest: 5: must not be below oldest, 6"},
		"no version":      {func(r *Recorded) { r.Oldest = -1 }, "trajectory.recorded.newest"},
	} {
		t.Run(name, func(t *testing.T) {
			spoilt, copied := *sent, *sent.Recorded
			spoilt.Recorded = &copied
			c.spoil(&copied)
			require.ErrorContains(t, spoilt.Validate(), c.fault)
		})
	}
}
