package toolserver

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// slowCloser is a tool whose sessions close when they are let.
type slowCloser struct {
	closing, let chan struct{}

	mu   sync.Mutex
	told []string
}

func (t *slowCloser) note(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = append(t.told, what)
}

func (t *slowCloser) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "slow"} }

func (t *slowCloser) Open(_ context.Context, s producers.Session) error {
	t.note("open " + s.Episode)
	return nil
}

func (t *slowCloser) Call(_ context.Context, c producers.Call) (producers.Observation, error) {
	t.note("call " + c.Episode)
	return producers.Observation{Text: "ok"}, nil
}

func (t *slowCloser) Close(_ context.Context, episode string) error {
	t.closing <- struct{}{}
	<-t.let
	t.note("closed " + episode)
	return nil
}

// A call that comes while its session closes waits for that: a tool has no two sessions of a name, and none is left open that nobody closes.
func TestACallWhileItsSessionClosesOpensItAnew(t *testing.T) {
	t.Parallel()
	tool := &slowCloser{closing: make(chan struct{}), let: make(chan struct{})}
	s := New(Config{Sessions: 4, Idle: time.Hour}, []producers.Tool{tool})
	call := func() {
		_, err := s.Call(t.Context(), "a", "slow", "", nil)
		require.NoError(t, err)
	}
	call()
	var both sync.WaitGroup
	both.Go(func() { require.NoError(t, s.Close(t.Context(), "a")) })
	<-tool.closing
	called := make(chan struct{})
	both.Go(func() {
		defer close(called)
		call()
	})
	select {
	case <-called:
		t.Error("a call was made in a session that closes")
	case <-time.After(20 * time.Millisecond):
	}
	tool.let <- struct{}{}
	both.Wait()
	require.Equal(t, []string{"open a", "call a", "closed a", "open a", "call a"}, tool.told)

	// The session that was opened anew is the one that is closed.
	both.Go(func() { require.NoError(t, s.Close(t.Context(), "a")) })
	<-tool.closing
	tool.let <- struct{}{}
	both.Wait()
	require.Equal(t, "closed a", tool.told[len(tool.told)-1])
	require.Empty(t, s.open)
}

// A session that a call has entered meanwhile is not closed as idle.
func TestASessionThatIsInUseIsNotIdle(t *testing.T) {
	t.Parallel()
	tool := &slowCloser{closing: make(chan struct{}, 1), let: make(chan struct{}, 1)}
	s := New(Config{Sessions: 4, Idle: time.Hour}, []producers.Tool{tool})
	_, err := s.Call(t.Context(), "a", "slow", "", nil)
	require.NoError(t, err)
	looks := 0
	tool.let <- struct{}{}
	s.endSessions(t.Context(), func(one *session) bool {
		if looks++; looks == 1 {
			one.busy++ // a call comes between the look and the end
			return true
		}
		return one.busy == 0
	})
	require.Equal(t, []string{"open a", "call a"}, tool.told)
	require.Contains(t, s.open, "a")
}
