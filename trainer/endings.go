package trainer

import (
	"log/slog"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/bias"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/metrics"
)

// endings measures what became of the trajectories. No checkpoint has it: a trainer that starts again begins to measure anew.
type endings struct {
	window  bias.Window
	step    stepEndings
	sources names
	// tasks are the run's, log is where the first name beyond the bound of sources goes.
	tasks []string
	log   *slog.Logger
}

func newEndings(deps Deps) endings {
	e := endings{sources: names{kind: "source"}, log: deps.Log}
	if deps.Prompts != nil {
		e.tasks = deps.Prompts.Tasks()
	}
	return e
}

// addEnding takes in a trajectory that is compared; reason is "" if it was trained on.
func (e *endings) addEnding(t *schemas.Trajectory, reason schemas.Reason) {
	if t.Greedy() || !slices.Contains(e.tasks, t.Task) {
		return
	}
	e.window.Add(t, e.sourceName(t.Task, t.Source), t.Task, reason)
}

// sourceName is the name that a source is compared under.
func (e *endings) sourceName(task, source string) string {
	if len(e.tasks) > 1 {
		source = task + "/" + source
	}
	return e.sources.boundedName(source, e.log)
}

// addUnseen takes in a sample of a group that did not come, and returns the seconds since its ticket.
func (e *endings) addUnseen(g checkpoint.OpenGroup, now time.Time) float64 {
	seconds := max(0, now.Sub(g.Ticket.IssuedAt).Seconds())
	e.window.AddUnseen(g.Ticket.Cursor, e.sourceName(g.Ticket.Task, g.Ticket.Prompt.Source), g.Ticket.Task, seconds)
	return seconds
}

// stepEndings are the trajectories and samples that ended in a step and were not trained on.
type stepEndings struct {
	lengths, durations map[schemas.Reason]*runningMean
	// lost and cancelled are the seconds from a ticket to the end of its sample.
	lost, cancelled runningMean
}

// addBatch takes in the trajectories that a step trained on. A greedy baseline and a sample that was passed over are compared with none.
func (e *endings) addBatch(b *batch.Batch) {
	if b == nil {
		return
	}
	for _, g := range b.Groups {
		for _, m := range g.Members {
			if !m.PassedOver {
				e.addEnding(m.Trajectory, "")
			}
		}
	}
}

// addUnused takes in a trajectory that was not trained on.
func (e *endings) addUnused(t *schemas.Trajectory, reason schemas.Reason) {
	if t == nil {
		return
	}
	e.addEnding(t, reason)
	if e.step.lengths == nil {
		e.step.lengths, e.step.durations = map[schemas.Reason]*runningMean{}, map[schemas.Reason]*runningMean{}
	}
	if e.step.lengths[reason] == nil {
		e.step.lengths[reason], e.step.durations[reason] = &runningMean{}, &runningMean{}
	}
	e.step.lengths[reason].addValue(float64(t.Tokens()))
	e.step.durations[reason].addValue(max(0, t.FinishedAt.Sub(t.StartedAt).Seconds()))
}

// addClosed takes in the samples that a producer closed without a trajectory.
func (e *endings) addClosed(m *schemas.GroupClosed, open map[string]checkpoint.OpenGroup, now time.Time) {
	if m == nil {
		return
	}
	if g, ok := open[m.Group]; ok {
		for range min(len(m.Cancelled), g.Ticket.GroupSize) {
			e.step.cancelled.addValue(e.addUnseen(g, now))
		}
	}
}

// addLost takes in the tickets whose samples were given up.
func (e *endings) addLost(tickets []string, open map[string]checkpoint.OpenGroup, now time.Time) {
	for _, id := range tickets {
		if cursor, attempt, _, ok := batch.ParseTicketID(id); ok {
			if g, is := open[batch.GroupID(cursor, attempt)]; is {
				e.step.lost.addValue(e.addUnseen(g, now))
			}
		}
	}
}

// EndingMetrics are the numbers of the trajectories that ended.
func (i *intake) EndingMetrics() map[string]float64 {
	v := i.endings.stepMetrics()
	if i.cfg.waitsForEpisodes() {
		i.episodeWait.addMetrics(v)
	}
	return v
}

func (e *endings) stepMetrics() map[string]float64 {
	v := map[string]float64{}
	for reason, m := range e.step.lengths {
		v[metrics.EndedLength.Of(string(reason))] = m.value()
		v[metrics.EndedDuration.Of(string(reason))] = e.step.durations[reason].value()
	}
	if e.step.lost.count > 0 {
		metrics.LostSeconds.Set(v, e.step.lost.value())
	}
	metrics.CancelledSamples.Set(v, e.step.cancelled.count)
	if e.step.cancelled.count > 0 {
		metrics.CancelledSeconds.Set(v, e.step.cancelled.value())
	}
	compared := e.window.Compare()
	metrics.BiasCompared.Set(v, float64(compared[bias.Length].Trained+compared[bias.Length].Others))
	for measure, k := range metrics.BiasKeys() {
		k.Distance.Set(v, compared[measure].Distance)
		k.P.Set(v, compared[measure].P)
	}
	for source, m := range e.window.BySource() {
		v[metrics.BiasSource.Of(source)] = m.LargestDistance()
	}
	for task, m := range e.window.ByTask() {
		v[metrics.BiasTask.Of(task)] = m.LargestDistance()
	}
	return v
}
