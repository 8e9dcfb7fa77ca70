package streams_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Defect F9: what a stranger wrote into the headers of a message in REJECTED went to the terminal as it was.
func TestAStrangersHeadersAreShownWithoutControls(t *testing.T) {
	conn := streamtest.Conn(t)
	r := streamtest.Open(t, conn)
	h := nats.Header{}
	for _, name := range []string{"Weir-Reason", "Weir-Detail", "Weir-Subject", "Weir-Stream"} {
		h.Set(name, "a\x1b]0;owned\x07b\u009bc")
	}
	_, err := conn.NATS().RequestMsgWithContext(t.Context(), &nats.Msg{Subject: "weir.test.rejected.stale", Header: h, Data: []byte("x")})
	require.NoError(t, err)
	const shown = "a ]0;owned b c"
	for m, err := range r.Rejected(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, streams.RejectedMessage{
			Sequence: 1, Reason: shown, Detail: shown, Subject: shown, Stream: shown, At: m.At, Data: []byte("x"),
		}, *m)
	}
}
