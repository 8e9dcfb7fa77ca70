package streams_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Defect P4: followers of control, weights and events passed over whatever a bucket that was made anew held, until it had
// been written to as often as the old one.
func TestFollowersGoOnInStreamsMadeAnew(t *testing.T) {
	for _, how := range []string{
		"the broker lost its store", "an operator removed the streams", "the broker came back with an older copy of its store",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newLasting(t)
			conn := b.connect(t)
			r := openWithLease(t, conn, time.Minute)
			put := func(version int64) {
				require.NoError(t, r.UpdateControl(t.Context(), func(*schemas.Control) *schemas.Control {
					return &schemas.Control{Run: "test", PolicyVersion: version}
				}))
				m, shards := streamtest.Weights("test", version, []byte{byte(version)})
				require.NoError(t, streamtest.PublishWeights(t.Context(), r, m, shards))
				require.NoError(t, r.Emit(t.Context(), &schemas.Event{
					Run: "test", Type: schemas.EventWorkerJoined, At: time.Unix(1, 0).UTC(), Role: "producer", Worker: "w", Step: version,
				}))
			}
			follower, err := b.connect(t).Attach(t.Context(), "test")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			seen := map[string]chan int64{"control": make(chan int64, 100), "weights": make(chan int64, 100), "events": make(chan int64, 100)}
			ended := make(chan error, len(seen))
			go func() {
				ended <- follower.FollowControl(ctx, func(c *schemas.Control) { seen["control"] <- c.PolicyVersion })
			}()
			go func() {
				ended <- follower.FollowWeights(ctx, func(m *schemas.Manifest) error {
					seen["weights"] <- m.Version
					return nil
				})
			}()
			go func() {
				ended <- follower.FollowEvents(ctx, streams.EventsFromStart, func(e *schemas.Event) { seen["events"] <- e.Step })
			}()
			comes := func(version int64) {
				wait := within(t)
				for what, versions := range seen {
					for got := int64(-1); got != version; {
						select {
						case got = <-versions:
						case <-wait.Done():
							require.Fail(t, "not seen", "%s %d", what, version)
						}
					}
				}
			}
			older := filepath.Join(t.TempDir(), "older")
			for version := range int64(10) {
				if version == 4 {
					b.copy(t, older)
				}
				put(version)
			}
			comes(9)
			switch how {
			case "the broker lost its store":
				b.lose(t)
			case "the broker came back with an older copy of its store":
				b.comeBackWith(t, older)
			default:
				js, err := jetstream.New(conn.NATS())
				require.NoError(t, err)
				for name := range js.StreamNames(t.Context()).Name() {
					require.NoError(t, js.DeleteStream(t.Context(), name))
				}
			}
			r = openWithLease(t, conn, time.Minute)
			put(10)
			comes(10)
			cancel()
			for range seen {
				require.NoError(t, <-ended)
			}
		})
	}
}

// A stream of events that was made anew before anything was read of it was read twice.
func TestEventsOfAStreamMadeAnewComeOnce(t *testing.T) {
	t.Parallel()
	b := newLasting(t)
	conn := b.connect(t)
	r := openWithLease(t, conn, time.Minute)
	reads, err := conn.NATS().SubscribeSync("$JS.API.DIRECT.GET.WEIR_test_EVENTS")
	require.NoError(t, err)
	require.NoError(t, conn.NATS().Flush())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, ended := make(chan int64, 100), make(chan error, 1)
	go func() {
		ended <- r.FollowEvents(ctx, streams.EventsFromStart, func(e *schemas.Event) { seen <- e.Step })
	}()
	_, err = reads.NextMsgWithContext(within(t))
	require.NoError(t, err)
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), "WEIR_test_EVENTS"))
	openWithLease(t, conn, time.Minute)
	emit := func(step int64) error {
		return r.Emit(t.Context(), &schemas.Event{
			Run: "test", Type: schemas.EventWorkerJoined, At: time.Unix(1, 0).UTC(), Role: "producer", Worker: "w", Step: step,
		})
	}
	for step := range int64(3) {
		require.NoError(t, emit(step))
		require.Equal(t, step, <-seen)
	}
	b.broker.Shutdown()
	b.start(t) // the follower looks at the stream again
	require.Eventually(t, func() bool { return emit(3) == nil }, time.Minute, 10*time.Millisecond)
	require.EqualValues(t, 3, <-seen)
	cancel()
	require.NoError(t, <-ended)
}
