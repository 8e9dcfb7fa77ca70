package schemas

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A trajectory with the values of its states is read as it was written; one whose values do not fit its turns is refused. Without values
// its bytes are those of the golden file: version 3 has messages with and without.
func TestTrajectoriesCarryTheValuesOfTheirStates(t *testing.T) {
	was := sampleTrajectory()
	was.Values = []StateValue{{Mean: 0.5, Samples: 9, Tokens: 180}, {Mean: -1, Samples: 9}, {Mean: 1.25, Samples: 1, Tokens: 7}}
	require.NoError(t, was.Validate())
	data, err := Marshal(was)
	require.NoError(t, err)
	got := new(Trajectory)
	require.NoError(t, Unmarshal(data, got))
	require.Equal(t, was, got)
	require.Equal(t, 187, got.ValueTokens())
	for want, spoil := range map[string]func(){
		"trajectory.values: 2 entries for 3 turns":             func() { got.Values = got.Values[:2] },
		"trajectory.values[1].samples: -1: must be at least 0": func() { got.Values[1].Samples = -1 },
		"trajectory.values[2].tokens: -1: must be at least 0":  func() { got.Values[2].Tokens = -1 },
		"trajectory.values[0].mean: ":                          func() { got.Values[0].Mean = math.NaN() },
	} {
		require.NoError(t, Unmarshal(data, got))
		spoil()
		require.ErrorContains(t, got.Validate(), want)
	}
}
