package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Newcomer's friction 5: a trajectory that was refused is read too, from REJECTED, and a stranger's words do not steer the
// terminal, neither there nor in the list of what was refused.
func TestARefusedTrajectoryIsReadFromRejected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "small.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
broker: {listen: "127.0.0.1:0"}
run: {dir: `+dir+`}
trainer: {steps: 1, eta: 0, batch_groups: 1, group_size: 2, minibatches: 1, selection: {drop_zero_variance: false}, cold_start: {steps: 10}}
eval: {every: 0, test_questions: 1}
`), 0o600))
	weir(t, "up", "--config", config)

	ctx := t.Context()
	broker, err := broker.Start(ctx, broker.Config{
		StoreDir: filepath.Join(dir, "demo", "broker"), SyncAlways: true, MaxPayload: 1 << 20, MaxBufferedBytes: 1 << 26,
	}, nil)
	require.NoError(t, err)
	defer broker.Shutdown() // a second time does nothing
	conn := streamtest.Connect(t, streams.ConnectConfig{Name: "test", Role: streams.RoleAdmin, Broker: broker})
	run, err := conn.Attach(ctx, "demo")
	require.NoError(t, err)
	stranger := streamtest.Trajectory(999_999, 0, 6, 0)
	stranger.Run, stranger.ID, stranger.Group, stranger.Source = "demo", "g999999-a0-0", "g999999-a0", "\x1b]0;owned\x07"
	stranger.Stop, stranger.Answer = schemas.StopAnswer, "\u009b2J"
	require.NoError(t, run.Publish(ctx, stranger))
	feed, err := run.Feed(ctx, streams.FeedOptions{})
	require.NoError(t, err)
	for rejected := false; !rejected; {
		d, err := feed.Next(ctx)
		if errors.Is(err, streams.ErrIdle) {
			continue
		}
		require.NoError(t, err)
		if rejected = d.Trajectory != nil && d.Trajectory.ID == stranger.ID; rejected {
			require.NoError(t, feed.Reject(ctx, d, schemas.ReasonForeign, "of no group that was issued \u009b31m"))
		}
	}
	feed.Close()
	conn.Close()
	broker.Shutdown()

	look := func(args ...string) string {
		t.Helper()
		out := weir(t, append(args, "--run.dir", dir)...)
		require.NotRegexp(t, `[\x00-\x09\x0b-\x1f\x7f-\x{9f}]`, out)
		return out
	}
	text := look("trajectory", stranger.ID)
	require.Contains(t, text, `g999999-a0-0  refused: foreign, of no group that was issued  31m`)
	require.Contains(t, text, `source \x1b]0;owned\x07`)
	require.Contains(t, text, `  answer       \x9b2J`)
	require.Contains(t, text, "\n  policy ")
	require.Contains(t, look("trajectory", "g999"), "  policy ", "the only one that begins so")

	var whole struct {
		Fate struct {
			State, Reason string
			Step          int64
		}
		Rollout struct{ Source string }
	}
	require.NoError(t, json.Unmarshal([]byte(look("trajectory", stranger.ID, "-o", "json")), &whole))
	require.Equal(t, "refused", whole.Fate.State)
	require.Equal(t, "foreign", whole.Fate.Reason)
	require.EqualValues(t, -1, whole.Fate.Step)
	require.Equal(t, stranger.Source, whole.Rollout.Source)

	require.Contains(t, look("inspect", "rejected"), `of no group that was issued  31m`)
	var listed struct {
		Number, Sequence uint64
		Reason, Stream   string
		Bytes            int
	}
	require.NoError(t, json.Unmarshal([]byte(look("inspect", "rejected", "-o", "json")), &listed))
	require.Equal(t, "foreign", listed.Reason)
	require.EqualValues(t, 1, listed.Number)
	require.Positive(t, listed.Bytes)
}
