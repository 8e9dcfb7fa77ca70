//go:build linux && (amd64 || arm64)

package workspace

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a manager of a few unconfined workspaces, and its pool.
func small(t *testing.T, most, warm int) (*Manager, *sandbox.Pool) {
	t.Helper()
	cfg := sandbox.Default()
	cfg.Tier, cfg.Unsafe, cfg.Most, cfg.Warm = sandbox.TierNone, sandbox.Understood, most, warm
	m := New(cfg)
	m.Claim()
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	m.filling <- struct{}{} // nobody starts workspaces in advance but the test
	pool, err := m.Ready(t.Context())
	require.NoError(t, err)
	return m, pool
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Finding 12a.7: a workspace that was started in advance is given to an episode that waits for a place already.
func TestAWorkspaceStartedInAdvanceServesWhoWaits(t *testing.T) {
	m, pool := small(t, 2, 1)
	for _, episode := range []string{"a", "c"} {
		require.NoError(t, m.Join(producers.Session{Episode: episode}))
		defer m.Leave(episode)
	}
	_, _, err := m.Get(patient(t), "a")
	require.NoError(t, err)
	place := pool.TryTake()
	require.NotNil(t, place)
	served := make(chan error, 1)
	go func() {
		_, _, err := m.Get(patient(t), "c")
		served <- err
	}()
	require.Eventually(t, func() bool { return pool.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
	w, err := openWorkspace(patient(t), place)
	require.NoError(t, err)
	m.warm <- w
	require.NoError(t, <-served)
	got, open := m.Open("c")
	require.True(t, open)
	require.Same(t, w, got)
}

// Finding 12a.9: an episode whose sandbox has ended keeps its place, also while others wait for one, until it leaves.
func TestAnEpisodeKeepsItsPlaceWhenItsSandboxHasEnded(t *testing.T) {
	m, pool := small(t, 1, 0)
	for _, episode := range []string{"a", "b"} {
		require.NoError(t, m.Join(producers.Session{Episode: episode}))
	}
	w, again, err := m.Get(patient(t), "a")
	require.NoError(t, err)
	require.False(t, again)
	served := make(chan error, 1)
	go func() {
		_, _, err := m.Get(patient(t), "b")
		served <- err
	}()
	require.Eventually(t, func() bool { return pool.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
	w.process.Kill()
	<-w.process.Ended()
	next, again, err := m.Get(patient(t), "a")
	require.NoError(t, err)
	require.True(t, again)
	require.NotSame(t, w, next)
	require.Equal(t, 1, pool.Stats().Waiting)
	m.Leave("a")
	require.NoError(t, <-served)
	m.Leave("b")
	require.Eventually(t, func() bool { return pool.Stats().Running == 0 }, time.Minute, time.Millisecond)
}

// Finding 12a.7: a program of the operator's gets the place of a workspace that was started in advance.
func TestAProgramGetsThePlaceOfAWorkspaceStartedInAdvance(t *testing.T) {
	m, pool := small(t, 1, 1)
	w, err := openWorkspace(patient(t), pool.TryTake())
	require.NoError(t, err)
	m.warm <- w
	place, err := m.TakePlace(patient(t))
	require.NoError(t, err)
	process, err := place.Start(patient(t), sandbox.Spec{Argv: []string{"true"}})
	require.NoError(t, err)
	exit, err := process.Wait(patient(t))
	require.NoError(t, err)
	require.Equal(t, sandbox.Exit{}, exit)
	process.Close()
	place.Leave()
	require.Eventually(t, func() bool { return pool.Stats().Running == 0 }, time.Minute, time.Millisecond)
}

// Finding 13 R8: Close of the manager ends whoever waits for a place, and waits for none of them, although the holder keeps its place.
func TestACloseOfTheManagerEndsEveryWaitForAPlace(t *testing.T) {
	m, pool := small(t, 1, 0)
	require.NoError(t, m.Join(producers.Session{Episode: "waits"}))
	held, err := m.TakePlace(patient(t))
	require.NoError(t, err)
	ended := make(chan error, 3)
	ctx := patient(t)
	for _, wait := range []func() error{
		func() error { _, _, err := m.Get(ctx, "waits"); return err },
		func() error { _, err := m.Fresh(ctx); return err },
		func() error { _, err := m.TakePlace(ctx); return err },
	} {
		go func() { ended <- wait() }()
	}
	require.Eventually(t, func() bool { return pool.Stats().Waiting == cap(ended) }, time.Minute, time.Millisecond)
	require.NoError(t, m.Close())
	for range cap(ended) {
		err := <-ended
		require.ErrorIs(t, err, producers.ErrUnavailable)
		require.ErrorContains(t, err, "closed")
	}
	held.Leave()
	m.Leave("waits")
	require.Zero(t, pool.Stats().Running)
}

// A place that was taken before the first use is kept, with the workspace that was started in advance on it, by whatever comes first.
func TestAPlaceIsTakenBeforeItsFirstUse(t *testing.T) {
	m, pool := small(t, 1, 1)
	for name, use := range map[string]func(given *Workspace){
		"a call": func(given *Workspace) {
			w, fresh, err := m.Get(patient(t), "a")
			require.NoError(t, err)
			require.False(t, fresh)
			require.Same(t, given, w)
		},
		"a reward": func(given *Workspace) {
			w, err := m.FreshAfter(patient(t), "a")
			require.NoError(t, err)
			require.NotSame(t, given, w)
			require.Eventually(t, given.Gone, time.Minute, time.Millisecond)
			w.Close()
		},
		"nothing": func(*Workspace) {},
	} {
		require.NoError(t, m.Join(producers.Session{Episode: "a"}), name)
		given, err := openWorkspace(patient(t), pool.TryTake())
		require.NoError(t, err, name)
		m.warm <- given
		took := make(chan error, 4)
		for range cap(took) {
			go func() { took <- m.TakeFor(t.Context(), "a", time.Minute) }()
		}
		for range cap(took) {
			require.NoError(t, <-took, name)
		}
		require.Equal(t, 1, pool.Stats().Running, name)
		use(given)
		m.Leave("a")
		require.Eventually(t, func() bool { return pool.Stats().Running == 0 }, time.Minute, time.Millisecond, name)
		require.ErrorIs(t, m.TakeFor(patient(t), "a", 0), producers.ErrUnavailable, name)
	}
}
