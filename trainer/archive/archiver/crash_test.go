package archiver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// start starts an archiver in a process of its own.
func (c child) start(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = &strings.Builder{}
	require.NoError(t, cmd.Start())
	return cmd
}

// bench is a run with a trainer that asks.
type bench struct {
	*testing.T
	ctx    context.Context //nolint:containedctx // of the whole test
	run    *streams.Run
	feed   *streams.Feed
	losses int64
	// published are the messages, by sequence - 1.
	published [][]byte
}

func newBench(t *testing.T, c streams.ConnectConfig) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 64<<20, 8<<20
	run, err := streamtest.Connect(t, c).Open(ctx, "test", topology)
	require.NoError(t, err)
	feed, err := run.Feed(ctx, streams.FeedOptions{})
	require.NoError(t, err)
	t.Cleanup(feed.Close)
	return &bench{T: t, ctx: ctx, run: run, feed: feed}
}

// publish publishes trajectories and takes them in as the trainer does.
func (b *bench) publish(n int) {
	b.Helper()
	for range n {
		tr := streamtest.Trajectory(len(b.published), 0, 100, 1)
		data, err := schemas.Marshal(tr)
		require.NoError(b, err)
		require.NoError(b, b.run.Publish(b.ctx, tr))
		b.published = append(b.published, data)
		d, err := b.feed.Next(b.ctx)
		require.NoError(b, err)
		require.EqualValues(b, len(b.published), d.Sequence)
		require.NoError(b, b.feed.Ack(b.ctx, d.Sequence))
	}
}

func (b *bench) request() *streams.KeepRequest {
	r := &streams.KeepRequest{Position: b.feed.Identity(), Losses: b.losses, Known: b.feed.Known()}
	r.Sequence = uint64(len(b.published))
	return r
}

// requireKept makes sure that a folder has every message up to a sequence, each once, but for those of a gap, and nothing else of them.
func (b *bench) requireKept(folder messages.Folder, after, upTo uint64) {
	b.Helper()
	kept := map[uint64][]byte{}
	for m, err := range messages.All(folder) {
		require.NoError(b, err)
		require.NotContains(b, kept, m.Sequence, "kept twice")
		kept[m.Sequence] = m.Data
	}
	for s := after + 1; s <= upTo; s++ {
		require.Equal(b, b.published[s-1], kept[s], "sequence %d", s)
	}
}

// Invariant: a sequence that the archiver has told is kept, wherever it and the broker die.
//
// The archiver is a process that kills itself at a random stage, in the middle of a write too, and is started again; the broker is killed
// now and then. The trainer purges what the archiver has told, and the folder is compared with all that was published.
func TestInvariantWhatTheArchiverTellsIsKeptWhereverItDies(t *testing.T) {
	t.Parallel()
	target := streamtest.Process(t)
	b := newBench(t, target.Connection())
	folder := messages.Folder{Dir: t.TempDir()}
	random := rand.New(rand.NewPCG(7, 11))
	working, stop := context.WithCancel(b.ctx)
	kills := 0
	var archivers errgroup.Group
	archivers.Go(func() error {
		for working.Err() == nil {
			c := child{URL: target.Connection().URL, Folder: folder.Dir, Dies: 1 + random.IntN(24)}
			cmd := c.start(t)
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case err := <-ended:
				if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					return fmt.Errorf("the archiver ended otherwise: %w: %s", err, cmd.Stderr)
				}
				kills++
			case <-working.Done():
				_ = cmd.Process.Signal(syscall.SIGTERM)
				err := <-ended
				exit, ok := errors.AsType[*exec.ExitError](err)
				if ok && slices.Contains([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}, exit.Sys().(syscall.WaitStatus).Signal()) {
					return nil // it had not begun to listen for the signal, or died of itself meanwhile
				}
				return err
			}
		}
		return nil
	})
	told := make(chan *streams.Kept, 1)
	var follower errgroup.Group
	follower.Go(func() error {
		return b.run.FollowKept(working, func(k *streams.Kept) {
			select {
			case <-told:
			default:
			}
			told <- k
		})
	})
	purged := uint64(0)
	for round := range 12 {
		b.publish(1 + round%5)
		if round%4 == 3 {
			target.Stop(t)
			target.Start(t)
		}
		r := b.request()
		require.NoError(t, b.run.AskToKeep(b.ctx, r))
		for upTo := uint64(0); upTo < r.Sequence; {
			select {
			case k := <-told:
				upTo = k.UpTo(r)
				require.Empty(t, k.Gaps)
				b.requireKept(folder, 0, upTo)
				if upTo > purged {
					require.NoError(t, b.feed.Purge(b.ctx, upTo))
					purged = upTo
				}
			case <-b.ctx.Done():
				require.NoError(t, b.ctx.Err(), "kept up to %d of %d", upTo, r.Sequence)
			}
		}
	}
	stop()
	require.NoError(t, archivers.Wait())
	require.NoError(t, follower.Wait())
	require.NotZero(t, kills)
	b.requireKept(folder, 0, uint64(len(b.published)))
	verified, err := messages.Verify(folder)
	require.NoError(t, err)
	require.Empty(t, verified.Damage)
	require.Empty(t, verified.Notes)
}
