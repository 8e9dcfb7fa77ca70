package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// promptStream has a trajectory whose prompt it names.
type promptStream string

// ReadStored implements messages.Source.
func (s promptStream) ReadStored(context.Context, uint64, uint64, int) (messages.Span, []messages.Message, error) {
	at := time.Unix(1700000000, 0).UTC()
	data, err := schemas.Marshal(&schemas.Trajectory{
		Run: "demo", ID: batch.TicketID(0, 0, 0), Group: batch.GroupID(0, 0), GroupSize: 1, Task: "t", PromptID: string(s), Producer: "p",
		Stop: schemas.StopAnswer, StartedAt: at, FinishedAt: at, Segments: []schemas.Segment{{
			Tokens: schemas.Int32s{1, 2}, ActionMask: schemas.Bytes{0, 1}, Logprobs: schemas.Float32s{0, -1}, Versions: schemas.Runs{-1, 0},
			Temperature: 1,
		}},
	})
	return messages.Span{Last: 1}, []messages.Message{{Sequence: 1, Subject: "weir.demo.trajectories.0.p", At: at, Data: data}}, err
}

// Finding 14.1, its rest: these commands read an archive of two runs of one name, of a build in which archives had no owner, as one run's.
func TestCommandsRefuseAnArchiveOfTwoRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	checkpoints := filepath.Join(dir, "demo", "checkpoints")
	require.NoError(t, os.MkdirAll(checkpoints, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(checkpoints, checkpoint.RecordFile), []byte("{\"step\":0}\n"), 0o600))
	for i, prompt := range []promptStream{"of the first", "of the second"} {
		a, err := messages.Open(archive.Config{}.MessagesFolder(checkpoints), messages.Config{Bytes: 1 << 30}, messages.Owner{Run: "demo"},
			messages.Life{Created: time.Unix(1700000000+int64(i), 0)}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		_, err = a.Keep(t.Context(), prompt, 1)
		require.NoError(t, err)
		require.NoError(t, a.Close())
	}
	for _, command := range [][]string{{"audit", "--verify"}, {"records", "parquet"}, {"rescore"}} {
		out, err := runWeir(t, "", append(command, "--run.dir", dir)...)
		require.Error(t, err, "%v: %s", command, out)
		text := out + fmt.Sprint(err)
		for _, want := range []string{"two runs of the name demo", "of the first", "of the second", "move the segments of one"} {
			require.Contains(t, text, want, "%v", command)
		}
	}
	written, err := filepath.Glob(filepath.Join(dir, "demo", "parquet", "*.parquet"))
	require.NoError(t, err)
	require.Empty(t, written)
}
