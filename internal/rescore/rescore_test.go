package rescore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

func kept(id string, reward float64) *runfolder.Kept {
	return &runfolder.Kept{Trajectory: &schemas.Trajectory{ID: id, Group: id[:1], Task: "t", Source: "s", Reward: reward}, Sequence: 1}
}

func TestARewardThatFailsLeavesTheRowsBeforeIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	away, lacks := errors.New("the judge is away"), errors.New("no question")
	o := Options{
		File: path, At: 4,
		Score: func(_ context.Context, k *runfolder.Kept) (producers.Score, error) {
			switch k.ID {
			case "b1":
				return producers.Score{}, lacks
			case "b2":
				return producers.Score{}, away
			}
			return producers.Score{Total: k.Reward + 1}, nil
		},
		Passes: func(err error) bool { return errors.Is(err, lacks) },
	}
	all := []*runfolder.Kept{kept("a1", 0), kept("b1", 1), kept("b2", 0), kept("b3", 0)}
	f, err := openFile(path, header{Run: "r"})
	require.NoError(t, err)
	n, err := o.scoreAll(t.Context(), f, all, nil)
	require.ErrorIs(t, err, away)
	require.Equal(t, 2, n)
	require.NoError(t, f.close())

	f, err = openFile(path, header{Run: "r"})
	require.NoError(t, err)
	require.Equal(t, map[runfolder.Name]bool{{ID: "a1", Sequence: 1}: true, {ID: "b1", Sequence: 1}: true}, f.has)
	require.NoError(t, f.close())
	sums, err := Summarize(path)
	require.NoError(t, err)
	require.Equal(t, Summary{Task: "t", Source: "s", Trajectories: 1, Changed: 1, Unscored: 1, Was: 0, Now: 1}, sums[0])
}

// Finding 3 of the eighth reader: two processes that wrote rows into one file at once left lines of both in one another.
func TestTwoProcessesWriteIntoTwoFiles(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("this system has no lock that another process sees")
	}
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	first, err := openFile(path, header{Run: "r"})
	require.NoError(t, err)
	_, err = openFile(path, header{Run: "r"})
	require.ErrorContains(t, err, "is being written to by another weir rescore")
	require.NoError(t, first.close())
	again, err := openFile(path, header{Run: "r"})
	require.NoError(t, err)
	require.NoError(t, again.close())
}

func TestAFileOfAnotherKindIsRefusedAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"first line names no run":           "id,reward\n1,2\n",
		"its first line names no run; name": `{"mine": "without a line's end"}`,
		"has the rows of run other":         `{"run":"other"}` + "\n",
		"was begun with k 1, and it is 2":   `{"run":"r","rewards":{"k":"1"}}` + "\n",
		"line 2 is no row of a trajectory":  `{"run":"r","rewards":{"k":"2"}}` + "\n{}\n",
		"was begun with l 3, and it is  no": `{"run":"r","rewards":{"k":"2","l":"3"}}` + "\n",
	} {
		path := filepath.Join(t.TempDir(), "rows.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := openFile(path, header{"r", map[string]string{"k": "2"}})
		require.ErrorContains(t, err, want)
		is, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(is))
	}
}

func TestGroupsThatTeachAreCounted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	f, err := openFile(path, header{Run: "r"})
	require.NoError(t, err)
	for group, rewards := range map[string][][2]float64{
		"flat":    {{1, 2}, {1, 2}},
		"learnt":  {{1, 0}, {1, 1}},
		"lost":    {{0, 1}, {1, 1}},
		"same":    {{0, 0}, {1, 1}},
		"swapped": {{0, 1}, {1, 0}},
		"single":  {{0, 5}},
	} {
		for _, r := range rewards {
			require.NoError(t, f.write(&Row{ID: "x", Group: group, Task: "t", Was: r[0], Reward: &r[1]}))
		}
	}
	require.NoError(t, f.close())
	sums, err := Summarize(path)
	require.NoError(t, err)
	require.Len(t, sums, 2)
	want := Summary{Trajectories: 11, Changed: 7, Was: 7.0 / 11, Now: 14.0 / 11, Groups: 5, WasApart: 3, NowApart: 3, OtherBest: 3}
	require.Equal(t, want, sums[1])
}
