package streams

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Invariant: once a seat is taken, no earlier holder takes messages away, publishes weights, moves control, or purges what
// the new one needs.
//
// Here it stops at the worst instants: after it has seen that the seat is its own, and before it writes. The conformance
// suite has the rest.
func TestOnceASeatIsTakenWhatWasUnderWayIsRefused(t *testing.T) {
	f := newFixture(t, true)
	zombie, err := f.attach(t).TakeSeat(f.ctx, nil)
	require.NoError(t, err)
	require.NoError(t, put(f.ctx, zombie.Run(), controlAt(1)))

	type write struct {
		bucket, key string
		revision    uint64
		mine        uint64
	}
	var underWay []write
	for _, w := range []write{{bucket: f.run.names.control, key: controlKey}, {bucket: f.run.names.weights, key: manifestKey}} {
		e, err := f.run.readEntry(f.ctx, w.bucket, w.key)
		require.NoError(t, err)
		w.revision = e.revision
		w.mine, err = zombie.markBucket(f.ctx, w.bucket, nil)
		require.NoError(t, err)
		underWay = append(underWay, w)
	}
	_, seen, err := zombie.readSeat(f.ctx, f.run.names.control)
	require.NoError(t, err)

	heir, err := f.attach(t).TakeSeat(f.ctx, nil)
	require.NoError(t, err)
	for _, w := range underWay {
		revision, err := zombie.run.writeEntry(f.ctx, w.bucket, w.key, []byte("late"), atRevision(w.revision), jetstream.WithExpectLastSequence(w.mine))
		require.NoError(t, err)
		require.Zero(t, revision, "%s", w.key)
	}
	revision, err := zombie.writeSeat(f.ctx, f.run.names.control, &Position{Stream: "s", Sequence: 7}, seen)
	require.NoError(t, err)
	require.Zero(t, revision, "how far it purges")
	require.NoError(t, put(f.ctx, heir.Run(), controlAt(2)))
	require.ErrorIs(t, put(f.ctx, zombie.Run(), controlAt(3)), ErrFenced)
	c, err := f.run.Control(f.ctx)
	require.NoError(t, err)
	require.Equal(t, controlAt(2), c)

	// An operator has no seat and needs none.
	require.NoError(t, put(f.ctx, f.run, controlAt(4)))
	require.NoError(t, put(f.ctx, heir.Run(), controlAt(5)))
}

// A broker whose streams were made anew knows no holder: the one that is there takes its place again, unless another was
// sooner.
func TestASeatThatTheBrokerForgotIsRenewed(t *testing.T) {
	f := newFixture(t, true)
	first, err := f.attach(t).TakeSeat(f.ctx, nil)
	require.NoError(t, err)
	second, err := f.attach(t).TakeSeat(f.ctx, nil)
	require.NoError(t, err)
	f.restart(t)
	require.NoError(t, second.Check(f.ctx), "a restart forgets nothing")
	require.ErrorIs(t, first.Check(f.ctx), ErrFenced)
	wipe := func() {
		for _, bucket := range []string{f.run.names.control, f.run.names.weights} {
			require.NoError(t, f.run.js.DeleteKeyValue(f.ctx, bucket))
		}
		_, err := f.connect(t).Open(f.ctx, "run-1", f.run.topology)
		require.NoError(t, err)
	}
	wipe()
	require.NoError(t, second.Renew(f.ctx))
	require.NoError(t, put(f.ctx, second.Run(), controlAt(1)))
	require.ErrorIs(t, first.Renew(f.ctx), ErrFenced)
	third, err := f.attach(t).TakeSeat(f.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(3), third.Epoch())
	require.ErrorIs(t, second.Renew(f.ctx), ErrFenced)

	// One bucket alone: the other still knows the epoch.
	require.NoError(t, f.run.js.DeleteKeyValue(f.ctx, f.run.names.control))
	_, err = f.connect(t).Open(f.ctx, "run-1", f.run.topology)
	require.NoError(t, err)
	fourth, err := f.attach(t).TakeSeat(f.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(4), fourth.Epoch())
}

// Finding O5 of the second review of operating: what is no seat ended the trainer at each start, and nothing said what to do.
func TestASeatThatIsGarbageIsReset(t *testing.T) {
	for _, broken := range [][]string{{"control"}, {"weights"}, {"control", "weights"}} {
		t.Run(strings.Join(broken, " and "), func(t *testing.T) {
			f := newFixture(t, true)
			reset, err := f.run.ResetSeat(f.ctx, "operator")
			require.NoError(t, err)
			require.Empty(t, reset, "nobody ever had the seat")
			var earlier *Seat
			for range 3 {
				earlier, err = f.attach(t).TakeSeat(f.ctx, nil)
				require.NoError(t, err)
			}
			feed, err := earlier.Run().Feed(f.ctx, FeedOptions{})
			require.NoError(t, err)
			defer feed.Close()
			reset, err = f.run.ResetSeat(f.ctx, "operator")
			require.NoError(t, err)
			require.Empty(t, reset, "a seat that can be read is a trainer's")

			want := []string{}
			for _, which := range broken {
				bucket := map[string]string{"control": f.run.names.control, "weights": f.run.names.weights}[which]
				want = append(want, bucket)
				_, err := f.run.js.Publish(f.ctx, keySubject(bucket, seatKey), []byte("\xc1garbage"))
				require.NoError(t, err)
			}
			_, err = f.attach(t).TakeSeat(f.ctx, nil)
			require.ErrorIs(t, err, ErrSeat)
			require.ErrorContains(t, err, "weir seat reset")
			reset, err = f.run.ResetSeat(f.ctx, "operator")
			require.NoError(t, err)
			require.Equal(t, want, reset)
			next, err := f.attach(t).TakeSeat(f.ctx, nil)
			require.NoError(t, err)
			require.Greater(t, next.Epoch(), earlier.Epoch()+1)
			require.ErrorIs(t, earlier.Check(f.ctx), ErrFenced, "an earlier trainer that lives after all")
			require.NoError(t, put(f.ctx, next.Run(), controlAt(1)))
		})
	}
}

// Messages that a seat's earlier holders have purged are not known of a seat that was garbage, and count as purged still.
func TestAResetSeatKnowsWhatIsGone(t *testing.T) {
	f := newFixture(t, true)
	_, err := f.attach(t).TakeSeat(f.ctx, nil)
	require.NoError(t, err)
	stream, err := f.run.js.Stream(f.ctx, f.run.names.trajectories)
	require.NoError(t, err)
	require.NoError(t, stream.Purge(f.ctx, jetstream.WithPurgeSequence(8)))
	_, err = f.run.js.Publish(f.ctx, keySubject(f.run.names.control, seatKey), []byte("null"))
	require.NoError(t, err)
	_, err = f.run.ResetSeat(f.ctx, "operator")
	require.NoError(t, err)
	info, err := stream.Info(f.ctx)
	require.NoError(t, err)
	require.Equal(t, uint64(8), info.State.FirstSeq)
	at := &Position{Stream: f.run.names.trajectories, Created: info.Created, Sequence: 6}
	_, err = f.attach(t).TakeSeat(f.ctx, at)
	require.ErrorIs(t, err, ErrPurged)
	at.Sequence = 7
	_, err = f.attach(t).TakeSeat(f.ctx, at)
	require.NoError(t, err)
}
