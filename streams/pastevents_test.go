package streams_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/streamtest"
)

// The events that are stored are read to their end, and the call returns; one that cannot be read, also as the last, is
// passed over.
func TestPastEventsEndWhereTheStreamDoes(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	read := func(most uint64) (steps []int64) {
		t.Helper()
		require.NoError(t, r.PastEvents(t.Context(), most, func(e *schemas.Event) { steps = append(steps, e.Step) }))
		return steps
	}
	require.Empty(t, read(10))
	for step := range int64(5) {
		require.NoError(t, r.Emit(t.Context(), &schemas.Event{Run: r.Name(), Type: schemas.EventStepDone, At: time.Now(), Role: "trainer", Step: step}))
	}
	require.Equal(t, []int64{0, 1, 2, 3, 4}, read(10))
	require.Equal(t, []int64{3, 4}, read(2))
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "weir."+r.Name()+".events", []byte("junk"))
	require.NoError(t, err)
	require.Equal(t, []int64{3, 4}, read(3))
}
