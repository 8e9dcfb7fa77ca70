package producers

import (
	"context"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// endingWatch watches how the episodes of a task end.
type endingWatch struct {
	overdue overdueWatch
	limited limitWatch
}

// newEndingWatch makes the watch of a task's episodes. agent is the name of their agent; "" is none.
func newEndingWatch(task, agent string, report func(schemas.Failing)) *endingWatch {
	return &endingWatch{
		overdue: overdueWatch{task: task, agent: agent, report: report},
		limited: limitWatch{task: task, agent: agent, report: report},
	}
}

// addEnded takes an episode that has a trajectory, and why it ended.
func (w *endingWatch) addEnded(e *Episode, stop schemas.StopReason) {
	if stop != schemas.StopTimeout {
		w.overdue.addEnded(e, time.Now())
	}
	w.limited.addStop(stop)
}

// watchEndings looks at the running episodes now and then, until ctx ends.
func (w *worker) watchEndings(ctx context.Context) {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			seen, overdue := w.running.readActivities(now), 0
			for task, watch := range w.endings {
				overdue += watch.overdue.lookAt(seen[task], now)
			}
			w.metrics.setOverdue(overdue)
		}
	}
}
