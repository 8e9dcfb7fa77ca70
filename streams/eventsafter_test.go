package streams_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Who reads on from a place reads each event once; where the stream was made anew it is told so, and reads from the beginning.
func TestEventsAreReadOnFromAPlace(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	emit := func(step int64) {
		require.NoError(t, r.Emit(t.Context(), &schemas.Event{Run: r.Name(), Type: schemas.EventStepDone, At: time.Unix(1, 0), Role: "trainer", Step: step}))
	}
	var place streams.EventsPlace
	var last streams.EventsRead
	read := func(most uint64) (steps []int64) {
		t.Helper()
		var err error
		last, err = r.EventsAfter(t.Context(), place, most, func(e *schemas.Event, stored time.Time) {
			require.Greater(t, stored.Unix(), e.At.Unix(), "it is the broker's time")
			steps = append(steps, e.Step)
		})
		require.NoError(t, err)
		place = last.To
		require.False(t, last.Now.IsZero())
		return steps
	}
	require.Empty(t, read(10))
	emit(1)
	emit(2)
	require.Equal(t, []int64{1, 2}, read(10))
	require.Empty(t, read(10))
	for step := int64(3); step < 7; step++ {
		emit(step)
	}
	require.Equal(t, []int64{5, 6}, read(2), "the newest of them")
	require.Empty(t, read(10))
	require.False(t, last.Anew)

	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), "WEIR_"+r.Name()+"_EVENTS"))
	r = streamtest.Open(t, conn)
	emit(9)
	require.Empty(t, read(10))
	require.True(t, last.Anew)
	require.Equal(t, []int64{9}, read(10))
}
