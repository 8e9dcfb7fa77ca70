package trainer

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/metrics"
)

// report reports each step: it owns the numbers of the step in hand and the run's totals.
type report struct {
	deps   Deps
	stats  stats
	totals checkpoint.Totals
	// components, sources, agents and tools are the names that became metrics.
	components, sources, agents, tools names
	// biased is set while the trained trajectories differ from all that ended.
	biased bool
	// unreported is the step of the checkpoint that this trainer started from, where an earlier process ended before it could
	// report it; else nil.
	unreported *unreported
	// cause is the likely cause of the last step's difference between sampler and trainer.
	cause metrics.Cause
}

// stats are the numbers of a step.
type stats struct {
	// began is when the step began, which is when the step before ended.
	began time.Time
	// wait is the time spent waiting for the batch, save that of the checkpoint, publish that of version and control.
	wait, save, publish time.Duration
	// refusals counts by reason the messages that were not trained on since the last step.
	refusals map[schemas.Reason]int64
	// learnt is the learner's part; nil until a batch was trained on.
	learnt *learner.Stats
	// endings are the numbers of all trajectories that ended, by metric key.
	endings map[string]float64
	// values are the batch's, by metric key; nil until a batch was trained on.
	values map[string]float64
}

// unreported is a step that ended in a checkpoint and was not reported.
type unreported struct {
	metrics map[string]float64
	at      time.Time
}

func newReport(deps Deps) *report {
	return &report{
		deps: deps, stats: stats{began: deps.Now()},
		components: names{kind: "reward component"}, sources: names{kind: "source"}, agents: names{kind: "agent"},
		tools: names{kind: "tool"},
	}
}

// resumeFrom goes on from a checkpoint, whose step is reported first if no process has reported it.
func (r *report) resumeFrom(s *checkpoint.State) {
	r.totals = s.Totals
	if r.deps.Reported != nil && s.Metrics != nil && s.Step > r.deps.Reported() {
		r.unreported = &unreported{metrics: s.Metrics, at: s.SavedAt}
	}
}

// measureBatch takes the batch's own numbers and adds to the run's totals; b is nil at version 0.
func (r *report) measureBatch(b *batch.Batch) {
	if b == nil {
		return
	}
	g := batchSums{
		components: map[string]*runningMean{}, sources: map[string]*runningMean{}, agents: map[string]*runningMean{},
		tasks: map[string]*runningMean{}, calls: map[string]int{}, stopped: map[schemas.StopReason]int{}, stalest: math.Inf(-1),
	}
	for name := range r.tools.known {
		g.calls[name] = 0 // a tool that is called no more is told of
	}
	for _, group := range b.Groups {
		if group.Baseline != nil {
			g.baselines.addValue(group.Baseline.Return)
		}
		for _, m := range group.Members {
			r.gatherMember(&g, b.Version, m, b.Uses() == 1)
		}
	}
	r.stats.values = g.batchMetrics(len(b.Groups))
	for _, n := range r.stats.refusals {
		r.totals.Rejected += n
	}
	if r.stats.learnt != nil {
		r.totals.OptimizerSteps += r.stats.learnt.OptimizerSteps
	}
	r.totals.Wall += r.deps.Now().Sub(r.stats.began)
	r.totals.Idle += r.stats.wait
}

// gatherMember adds one member of a batch; first is set where no step has trained on it before.
func (r *report) gatherMember(g *batchSums, version int64, m batch.Member, first bool) {
	t := m.Trajectory
	g.rewards.addValue(m.Return)
	for _, name := range slices.Sorted(maps.Keys(t.Rewards)) {
		namedMean(g.components, r.components.boundedName(name, r.deps.Log)).addValue(t.Rewards[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.AgentRewards)) {
		namedMean(g.agents, r.agents.boundedName(cmp.Or(name, "unnamed"), r.deps.Log)).addValue(t.AgentRewards[name])
	}
	source := t.Source
	if len(r.deps.Prompts.Tasks()) > 1 {
		namedMean(g.tasks, t.Task).addValue(m.Return)
		source = t.Task + "/" + source
	}
	if t.Source != "" {
		namedMean(g.sources, r.sources.boundedName(source, r.deps.Log)).addValue(m.Return)
	}
	if m.PassedOver {
		g.passedOver++
		return
	}
	g.lengths.addValue(float64(t.Tokens()))
	g.turns.addValue(float64(len(t.Turns)))
	for i := range t.Turns {
		for _, call := range t.Turns[i].Calls {
			g.calls[r.tools.boundedName(call.Tool, r.deps.Log)]++
		}
	}
	g.countFork(t)
	g.valueTokens += t.ValueTokens()
	g.stopped[t.Stop]++
	flight, queue := m.Staleness(version)
	g.inFlight.addValue(float64(flight))
	g.inQueue.addValue(float64(queue))
	g.stalest = max(g.stalest, float64(flight+queue))
	if first {
		r.totals.Trajectories++
		r.totals.Tokens += int64(t.Tokens())
		r.totals.ActionTokens += int64(t.ActionTokens())
	}
}

// batchSums are sums over a batch.
type batchSums struct {
	// rewards are of all members, baselines of the greedy rollouts; the others leave out members that were passed over.
	rewards, baselines runningMean
	lengths, turns     runningMean
	inFlight, inQueue  runningMean
	stalest            float64
	passedOver         int
	// forked counts trajectories that begin with turns of another trajectory, diverged the forks with fewer such turns than planned,
	// forkedTokens the sampled tokens of such turns.
	forked, diverged, forkedTokens int
	// valueTokens were sampled for the values of states.
	valueTokens int
	// components, sources, agents and tasks are means of rewards by name; tasks where the run has several.
	components, sources, agents, tasks map[string]*runningMean
	// calls counts the calls of each tool.
	calls map[string]int
	// stopped counts the trajectories by the reason of their end.
	stopped map[schemas.StopReason]int
}

// countFork counts the turns that a trajectory shares with its trunk.
func (g *batchSums) countFork(t *schemas.Trajectory) {
	if t.Forked == nil {
		return
	}
	g.forked++
	if t.Forked.Diverged != "" {
		g.diverged++
	}
	for _, turn := range t.Turns[:min(max(0, t.Forked.Turns), len(t.Turns))] {
		g.forkedTokens += turn.End - turn.Start
	}
}

// batchMetrics returns the metrics of a batch of this many groups.
func (g *batchSums) batchMetrics(groups int) map[string]float64 {
	v := map[string]float64{
		metrics.RewardMean.Name: g.rewards.value(), metrics.RewardStd.Name: g.rewards.deviation(),
		metrics.StalenessMean.Name: g.inFlight.value() + g.inQueue.value(), metrics.StalenessMax.Name: g.stalest,
		metrics.StalenessInFlight.Name: g.inFlight.value(), metrics.StalenessInQueue.Name: g.inQueue.value(),
		metrics.BatchGroups.Name: float64(groups), metrics.BatchTrajectories.Name: g.lengths.count, metrics.BatchPassedOver.Name: float64(g.passedOver),
		metrics.BatchTokens.Name: g.lengths.sum, metrics.BatchLength.Name: g.lengths.value(), metrics.BatchTurns.Name: g.turns.value(),
	}
	if g.forked > 0 {
		v[metrics.BatchForked.Name] = float64(g.forked)
		v[metrics.BatchDiverged.Name] = float64(g.diverged)
		v[metrics.BatchForkedTokens.Name] = float64(g.forkedTokens)
	}
	if g.valueTokens > 0 {
		v[metrics.BatchValueTokens.Name] = float64(g.valueTokens)
	}
	if g.baselines.count > 0 {
		v[metrics.RewardBaseline.Name] = g.baselines.value()
	}
	for reason, n := range g.stopped {
		v[metrics.BatchStopped.Of(string(reason))] = float64(n) / g.lengths.count
	}
	for tool, n := range g.calls {
		v[metrics.BatchCalls.Of(tool)] = float64(n) / max(1, g.lengths.count)
	}
	for name, m := range g.components {
		v[metrics.RewardComponent.Of(name)] = m.value()
	}
	for name, m := range g.sources {
		v[metrics.RewardSource.Of(name)] = m.value()
	}
	for name, m := range g.agents {
		v[metrics.RewardAgent.Of(name)] = m.value()
	}
	for name, m := range g.tasks {
		v[metrics.RewardTask.Of(name)] = m.value()
	}
	return v
}

// endStep reports the step that has just ended, and begins the next.
func (r *report) endStep(step int64, q queueCounts, b bounds) {
	now := r.deps.Now()
	defer func() { r.stats = stats{began: now} }()
	switch {
	case r.stats.values != nil:
		v := r.stepMetrics(now, q, b)
		r.deps.Metrics.recordStep(v, &r.stats)
		r.warnMismatch(step, v)
		r.warnBias(step, v)
		r.deps.Log.Debug("step done", "step", step, "reward", v[metrics.RewardMean.Name], "staleness", v[metrics.StalenessMean.Name], "idle", v[metrics.TimeIdleRatio.Name])
		r.emitStepDone(step, v, now)
	case r.unreported != nil:
		r.emitStepDone(step, r.unreported.metrics, r.unreported.at)
	}
	r.unreported = nil
}

// warnMismatch logs a warning when sampler and trainer begin to differ by too much, and again when the likely cause changes.
func (r *report) warnMismatch(step int64, v map[string]float64) {
	cause := metrics.Cause(metrics.MismatchCause.In(v))
	if cause != r.cause && cause != metrics.CauseNone {
		r.deps.Log.Warn(metrics.Mismatch(v), "step", step)
	}
	r.cause = cause
}

// warnBias logs a warning when the trained trajectories begin to differ from all that ended.
func (r *report) warnBias(step int64, v map[string]float64) {
	text := metrics.Bias(v)
	if text != "" && !r.biased {
		r.deps.Log.Warn(text, "step", step)
	}
	r.biased = text != ""
}

func (r *report) emitStepDone(step int64, metrics map[string]float64, at time.Time) {
	r.deps.Observer(schemas.Event{
		Run: r.deps.Stream.Name(), Type: schemas.EventStepDone, At: at.UTC(), Role: "trainer",
		Step: step, PolicyVersion: step, Metrics: metrics,
	})
}

// stepMetrics returns the metrics of the step so far.
func (r *report) stepMetrics(now time.Time, q queueCounts, b bounds) map[string]float64 {
	s := &r.stats
	v := maps.Clone(s.values)
	maps.Copy(v, s.learnt.Metrics())
	maps.Copy(v, s.endings)
	for reason, n := range s.refusals {
		v[metrics.Rejected.Of(string(reason))] = float64(n)
	}
	v[metrics.TimeWait.Name] = s.wait.Seconds()
	v[metrics.TimeOldPolicy.Name] = s.learnt.Before.Seconds()
	v[metrics.TimeUpdate.Name] = s.learnt.Update.Seconds()
	v[metrics.TimeSave.Name] = s.save.Seconds()
	v[metrics.TimePublish.Name] = s.publish.Seconds()
	step := now.Sub(s.began).Seconds()
	v[metrics.TimeStep.Name] = step
	if step > 0 {
		v[metrics.TimeIdleRatio.Name] = s.wait.Seconds() / step
		v[metrics.RateTrajectories.Name] = v[metrics.BatchTrajectories.Name] / step
		v[metrics.RateTokens.Name] = v[metrics.BatchTokens.Name] / step
	}
	if busy := s.learnt.Before + s.learnt.Update; busy > 0 {
		v[metrics.RateTrainTokens.Name] = v[metrics.BatchTokens.Name] / busy.Seconds()
	}
	v[metrics.QueueGroupsWaiting.Name] = float64(q.waiting)
	v[metrics.QueueGroupsReady.Name] = float64(q.ready)
	v[metrics.QueueMessagesEarly.Name] = float64(q.early)
	v[metrics.AdmissionEta.Name] = float64(b.eta)
	v[metrics.AdmissionDepth.Name] = float64(b.depth)
	v[metrics.TotalTrajectories.Name] = float64(r.totals.Trajectories)
	v[metrics.TotalTokens.Name] = float64(r.totals.Tokens)
	v[metrics.TotalRejected.Name] = float64(r.totals.Rejected)
	v[metrics.TotalOptimizerSteps.Name] = float64(r.totals.OptimizerSteps)
	return v
}

// phaseTimes returns the times of a step's phases, by name.
func (s *stats) phaseTimes() map[string]time.Duration {
	p := map[string]time.Duration{"wait": s.wait, "save": s.save, "publish": s.publish, "old_policy": 0, "update": 0}
	if s.learnt != nil {
		p["old_policy"], p["update"] = s.learnt.Before, s.learnt.Update
	}
	return p
}

// runningMean gathers count, mean and deviation.
type runningMean struct{ sum, squares, count float64 }

func (m *runningMean) addValue(x float64) {
	m.sum += x
	m.squares += x * x
	m.count++
}

func (m *runningMean) value() float64 {
	if m.count == 0 {
		return 0
	}
	return m.sum / m.count
}

func (m *runningMean) deviation() float64 {
	if m.count == 0 {
		return 0
	}
	return math.Sqrt(max(0, m.squares/m.count-m.value()*m.value()))
}

func namedMean(means map[string]*runningMean, name string) *runningMean {
	if means[name] == nil {
		means[name] = &runningMean{}
	}
	return means[name]
}
