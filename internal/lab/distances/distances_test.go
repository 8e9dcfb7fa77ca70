package distances

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

func TestAFolderWithoutTheReferenceIsNamed(t *testing.T) {
	_, err := Compare(t.TempDir(), "sync-seed-1")
	require.ErrorContains(t, err, `reference "sync-seed-1": no run of that name`)
}

func TestMeasuresOfATrajectory(t *testing.T) {
	start := time.Unix(100, 0)
	r := &Run{Name: "a", values: make([][]float64, len(names))}
	r.addTrajectory(&schemas.Trajectory{
		StartedAt: start, FinishedAt: start.Add(5 * time.Second),
		Turns: []schemas.Turn{{Calls: []schemas.ToolCall{{Duration: time.Second}, {Duration: 2 * time.Second}}}, {}},
	})
	require.Equal(t, [][]float64{{0}, {3}, {2}, {5}}, r.values)
	require.Equal(t, 1, r.Trained)
	r.Measures = []Measure{{"length", 4, 0.25, 0.5}, {"tools", 3, 0, 1}, {"slow calls", 2, 0, 1}, {"duration", 5, 0, 1}}
	var out bytes.Buffer
	Print(&out, []*Run{r})
	require.Contains(t, out.String(), "0.250")
}
