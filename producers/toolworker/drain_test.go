package toolworker

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// nowhere is a run without a broker.
type nowhere struct{}

func (nowhere) Name() string         { return "test" }
func (nowhere) ToolsSubject() string { return "weir.test.tools" }
func (nowhere) NATS() *nats.Conn     { return nil }
func (nowhere) Log() *slog.Logger    { return slog.New(slog.DiscardHandler) }

// Finding O5 of the second review of operating: a worker that was told to stop waited its whole grace for sessions of dead producers.
func TestADrainDoesNotWaitForTheSessionsOfTheDead(t *testing.T) {
	t.Parallel()
	s := newServer(DefaultConfig(), Deps{Stream: nowhere{}})
	defer s.stop()
	now := time.Now()
	open := func(name string, silent time.Duration, busy int) *session {
		one := s.newSession(&schemas.ToolRequest{Session: name, Opening: "1"})
		one.ready, one.last, one.busy = true, now.Add(-silent), busy
		s.sessions[name] = one
		s.open++
		return one
	}
	dead := open("dead", s.cfg.Grace+time.Second, 0)
	thinks := open("thinks", s.cfg.Grace-time.Second, 0)
	calls := open("calls", s.cfg.Idle+time.Hour, 1)
	tick := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, one := range s.sessions {
			one.tickSession(now)
		}
	}
	tick()
	require.NoError(t, dead.ctx.Err(), "a worker that goes on keeps a session for toolworker.idle")
	s.startDraining()
	tick()
	<-dead.ended
	require.NoError(t, thinks.ctx.Err())
	require.NoError(t, calls.ctx.Err())
	s.endAll("drained")
	<-s.empty
}
