package runfolder

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Finding O4 of the second review of operating: nothing named the producer whose messages were refused in a flood.
func TestRefusedMessagesAreCountedByProducer(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	run := streamtest.Open(t, conn)
	refuse := func(n int, producer string, reason schemas.Reason) {
		for range n {
			h := nats.Header{}
			h.Set("Weir-Reason", string(reason))
			h.Set("Weir-Subject", "weir.test.trajectories.3."+producer)
			_, err := conn.NATS().RequestMsgWithContext(t.Context(), &nats.Msg{Subject: fmt.Sprintf("weir.test.rejected.%s", reason), Header: h, Data: []byte("x")})
			require.NoError(t, err)
		}
	}
	count := func(f *refusals) (out []string) {
		all, err := f.readRefusals(t.Context(), run)
		require.NoError(t, err)
		for _, p := range all {
			out = append(out, p.String())
		}
		return out
	}
	var follow refusals
	require.Empty(t, count(&follow))
	refuse(2, "honest", schemas.ReasonStale)
	refuse(5, "flood.er", schemas.ReasonDuplicate)
	refuse(1, "flood.er", schemas.ReasonForeign)
	want := []string{"flood.er 6 (duplicate 5, foreign 1)", "honest 2 (stale 2)"}
	require.Equal(t, want, count(&follow))
	require.Equal(t, want, count(&follow), "each is counted once")
	require.Equal(t, want, count(new(refusals)))
	refuse(MostRefusals-3, "flood.er", schemas.ReasonDuplicate)
	want = []string{fmt.Sprintf("flood.er %d (duplicate %d, foreign 1)", MostRefusals, MostRefusals-1)}
	require.Equal(t, want, count(&follow), "the oldest make room")
	require.Equal(t, want, count(new(refusals)))
}

func TestAMessageIsOfTheProducerInItsSubject(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"weir.demo.trajectories.none.p-1": "p-1",
		"weir.demo.trajectories.7.a.b":    "a.b",
		"weir.demo.trajectories.7":        "",
		"weir.demo.tickets.t.g.0":         "",
		"":                                "",
	} {
		require.Equal(t, want, (&streams.RejectedMessage{Subject: subject}).Producer(), subject)
	}
}
