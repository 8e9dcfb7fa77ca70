package streams

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
)

func controlAt(version int64) *schemas.Control {
	return &schemas.Control{Run: "run-1", PolicyVersion: version, Eta: 4, Depth: 1, At: time.Unix(version, 0).UTC()}
}

// put makes control what it is given, whatever it was.
func put(ctx context.Context, r *Run, c *schemas.Control) error {
	return r.UpdateControl(ctx, func(*schemas.Control) *schemas.Control { return c })
}

func TestControl(t *testing.T) {
	viaTransports(t, func(f *fixture) {
		t := f.t
		_, err := f.run.Control(f.ctx)
		require.ErrorIs(t, err, ErrNoControl)
		ctx, cancel := context.WithCancel(f.ctx)
		seen := make(chan *schemas.Control, 10)
		done := make(chan error, 1)
		reader := f.attach(t)
		go func() { done <- reader.FollowControl(ctx, func(c *schemas.Control) { seen <- c }) }()
		for v := range int64(3) {
			require.NoError(t, put(f.ctx, f.run, controlAt(v)))
			require.Equal(t, controlAt(v), <-seen)
		}
		// What cannot be read is passed over.
		kv, err := f.run.js.KeyValue(f.ctx, f.run.names.control)
		require.NoError(t, err)
		_, err = kv.Put(f.ctx, controlKey, []byte("junk"))
		require.NoError(t, err)
		_, err = f.run.Control(f.ctx)
		require.ErrorIs(t, err, schemas.ErrMalformed)
		require.NoError(t, put(f.ctx, f.run, controlAt(9)))
		require.Equal(t, controlAt(9), <-seen)
		got, err := reader.Control(f.ctx)
		require.NoError(t, err)
		require.Equal(t, controlAt(9), got)
		cancel()
		require.NoError(t, <-done)

		require.ErrorIs(t, put(f.ctx, f.run, &schemas.Control{Run: "run-1", Depth: 1}), schemas.ErrInvalid)
		foreign := controlAt(1)
		foreign.Run = "other"
		require.ErrorIs(t, put(f.ctx, f.run, foreign), schemas.ErrInvalid)
	})
}

// The trainer writes versions while operators write the rest: no change is lost.
func TestControlIsChangedByManyAtOnceAndNoChangeIsLost(t *testing.T) {
	f := newFixture(t, true)
	const versions, etas = 30, 30
	require.NoError(t, f.run.UpdateControl(f.ctx, func(now *schemas.Control) *schemas.Control {
		require.Nil(t, now)
		return nil
	}))
	_, err := f.run.Control(f.ctx)
	require.ErrorIs(t, err, ErrNoControl, "nothing was to be written")
	require.NoError(t, put(f.ctx, f.run, &schemas.Control{Run: "run-1"}))
	var writers errgroup.Group
	raise := func(times int, change func(*schemas.Control)) {
		run := f.attach(t)
		writers.Go(func() error {
			for range times {
				err := run.UpdateControl(f.ctx, func(c *schemas.Control) *schemas.Control {
					change(c)
					return c
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	raise(versions, func(c *schemas.Control) { c.PolicyVersion++ })
	raise(etas, func(c *schemas.Control) { c.Eta++ })
	raise(1, func(c *schemas.Control) { c.Paused = true })
	require.NoError(t, writers.Wait())
	c, err := f.run.Control(f.ctx)
	require.NoError(t, err)
	require.Equal(t, &schemas.Control{Run: "run-1", Paused: true, PolicyVersion: versions, Eta: etas, At: c.At}, c)
}

func eventAt(step int64) *schemas.Event {
	return &schemas.Event{
		Run: "run-1", Type: schemas.EventStepDone, Role: "trainer", At: time.Unix(step, 0).UTC(), Step: step,
		Metrics: map[string]float64{"loss": 0.5}, Message: fmt.Sprint("step ", step),
	}
}

func TestEvents(t *testing.T) {
	viaTransports(t, func(f *fixture) {
		t := f.t
		for step := range int64(3) {
			require.NoError(t, f.run.Emit(f.ctx, eventAt(step)))
		}
		_, err := f.run.js.Publish(f.ctx, f.run.names.eventSubject(), []byte("junk"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(f.ctx)
		all, later := make(chan *schemas.Event, 10), make(chan *schemas.Event, 10)
		done := make(chan error, 2)
		reader := f.attach(t)
		go func() {
			done <- reader.FollowEvents(ctx, EventsFromStart, func(e *schemas.Event) { all <- e })
		}()
		for step := range int64(3) {
			require.Equal(t, eventAt(step), <-all)
		}
		go func() {
			done <- reader.FollowEvents(ctx, EventsFromNow, func(e *schemas.Event) { later <- e })
		}()
		// Emitted until the follower that has just begun hears one.
		var first *schemas.Event
		step := int64(3)
		for ; first == nil; step++ {
			require.NoError(t, f.run.Emit(f.ctx, eventAt(step)))
			select {
			case first = <-later:
			case <-time.After(20 * time.Millisecond):
			}
		}
		require.GreaterOrEqual(t, first.Step, int64(3), "nothing of before")
		for s := int64(3); s < step; s++ {
			require.Equal(t, eventAt(s), <-all)
		}
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		require.ErrorIs(t, f.run.Emit(f.ctx, &schemas.Event{Run: "run-1"}), schemas.ErrInvalid)
	})
}

func TestFollowersOutliveTheBroker(t *testing.T) {
	f := newFixture(t, true)
	ctx, cancel := context.WithCancel(f.ctx)
	controls, events := make(chan *schemas.Control, 10), make(chan *schemas.Event, 10)
	done := make(chan error, 2)
	reader := f.attach(t)
	require.NoError(t, put(f.ctx, f.run, controlAt(0)))
	require.NoError(t, f.run.Emit(f.ctx, eventAt(0)))
	go func() { done <- reader.FollowControl(ctx, func(c *schemas.Control) { controls <- c }) }()
	go func() {
		done <- reader.FollowEvents(ctx, EventsFromStart, func(e *schemas.Event) { events <- e })
	}()
	require.Equal(t, controlAt(0), <-controls)
	require.Equal(t, eventAt(0), <-events)
	f.restart(t)
	require.NoError(t, put(f.ctx, f.run, controlAt(1)))
	require.Equal(t, controlAt(1), <-controls)
	require.Eventually(t, func() bool { return f.run.Emit(f.ctx, eventAt(1)) == nil }, 2*time.Minute, 50*time.Millisecond)
	for e := range events {
		if e.Step == 1 {
			break
		}
	}
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
}
