package broker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// Defect S15: an engine sends its chunks to whatever reply subject a call names. With keys each role has an account of its own, so
// that they come to the caller's, and do no more than the caller may do itself.
func TestAnEngineAnswersItsCallerAlone(t *testing.T) {
	l := lockedBroker(t)
	admin := l.connect(t, streams.RoleAdmin)
	prepare(t, l, admin)
	js, err := jetstream.New(admin.NATS())
	require.NoError(t, err)
	served := make(chan struct{}, 2*len(targets()))
	engine := l.as(t, streams.RoleInference)
	go func() {
		_ = generate.Serve(t.Context(), engine, "engine", func(_ context.Context, _ *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
			served <- struct{}{}
			return emit(&schemas.GenerateChunk{Done: true, Stop: schemas.GenerateLength})
		})
	}()
	request := &schemas.GenerateRequest{Run: "test", Episode: "e", Tokens: []int32{1}, MaxTokens: 1, Temperature: 1}
	generator := generate.NewClient(l.as(t, streams.RoleProducer), generate.ClientOptions{})
	defer generator.Close()
	_, err = generator.Generate(t.Context(), request)
	require.NoError(t, err, "the engine answers")
	<-served

	// Who would hear an answer that went astray.
	strays := make(chan *nats.Msg, 64)
	for role, subject := range map[streams.Role]string{
		streams.RoleTrainer: "_INBOX_trainer.>", streams.RoleViewer: "_INBOX_viewer.>", streams.RoleInference: "_INBOX_inference.>",
	} {
		nc := l.connect(t, role).NATS()
		_, err := nc.ChanSubscribe(subject, strays)
		require.NoError(t, err)
		require.NoError(t, nc.Flush())
	}
	th := &thief{t: t, role: streams.RoleProducer, nc: l.connect(t, streams.RoleProducer).NATS(), admin: js}
	th.nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	before := th.everything()
	data, err := schemas.Marshal(request)
	require.NoError(t, err)
	for _, to := range append(targets(), "_INBOX_viewer.x", "_INBOX_inference.x", "weir.test.rejected.stale") {
		if strings.HasPrefix(to, "$JS.ACK.") {
			continue // the broker passes on no call with such a reply subject
		}
		th.make(attempt{subject: "weir.test.generate", reply: to, body: string(data)})
		select {
		case <-served:
		case <-time.After(time.Minute):
			require.Fail(t, "the engine was not asked", to)
		}
	}
	// An answer after all of them: it took the same ways.
	_, err = generator.Generate(t.Context(), request)
	require.NoError(t, err)
	th.unharmed(before, attempt{subject: "all"})
	require.Empty(t, strays)
}
