package trainer

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
)

// measures gathers what one step is reported by.
type measures struct {
	// began is when the step did: when the one before ended.
	began                            time.Time
	wait, old, update, save, publish time.Duration
	// refusals counts by reason.
	refusals map[string]int64
	drought  drought
	// losses are the loss's own metrics; entropy and mismatch are means over sampled tokens.
	losses            loss.Metrics
	loss              float64
	entropy, mismatch loss.Mean
	// offPolicy says how far the policy at the start of the step is from the one that sampled; nil when unknown.
	offPolicy map[string]float64
	// gradNorm and rate are means over the optimizer steps.
	gradNorm, rate mean
	skipped        int64
	// explained is the share of the returns' variance that the critic knew before the step; nil without a critic. The
	// others are of its optimizer steps.
	explained              *float64
	criticNorm, criticRate mean
	criticSkipped          int64
	// values are the batch's, by metric name; nil until a batch was trained on.
	values map[string]float64
}

func newMeasures(began time.Time) measures {
	return measures{began: began, refusals: map[string]int64{}, losses: loss.Metrics{}}
}

// stepped notes an optimizer step.
func (m *measures) stepped(o gpu.StepOptions, s gpu.StepStats) {
	if s.Skipped {
		m.skipped++
	} else {
		m.gradNorm.add(s.GradNorm)
	}
	m.rate.add(o.LearningRate)
}

// lost notes a micro-batch.
func (m *measures) lost(b *loss.Batch, r *loss.Result) {
	m.loss += r.Loss
	m.losses.Add(r.Metrics)
	for i, on := range b.Mask {
		if on != 0 {
			m.entropy.Sum += b.Entropies[i]
			m.entropy.Count++
		}
	}
	policy := b.Proximal
	if policy == nil {
		policy = b.Logprobs
	}
	sum, count := mismatchKL(policy, b.Behaviour, b.Mask)
	m.mismatch.Sum, m.mismatch.Count = m.mismatch.Sum+sum, m.mismatch.Count+count
}

// measure takes the batch's own numbers and adds to the run's totals; b is nil at version 0.
func (t *trainer) measure(b *batch.Batch) {
	if b == nil {
		return
	}
	v := map[string]float64{}
	var rewards, baselines, lengths, turns, inFlight, inQueue, passed mean
	stale := math.Inf(-1)
	components := map[string]*mean{}
	sources := map[string]*mean{}
	tasks := map[string]*mean{}
	several := len(t.deps.Prompts.Tasks()) > 1
	for _, g := range b.Groups {
		if g.Baseline != nil {
			baselines.add(g.Baseline.Return)
		}
		for _, m := range g.Members {
			rewards.add(m.Return)
			for _, name := range slices.Sorted(maps.Keys(m.Trajectory.Rewards)) {
				of(components, t.components.of(name, t.deps.Log)).add(m.Trajectory.Rewards[name])
			}
			source := m.Trajectory.Source
			if several {
				of(tasks, m.Trajectory.Task).add(m.Return)
				source = m.Trajectory.Task + "/" + source
			}
			if m.Trajectory.Source != "" {
				of(sources, t.sources.of(source, t.deps.Log)).add(m.Return)
			}
			if m.PassedOver {
				passed.add(1)
				continue
			}
			lengths.add(float64(m.Trajectory.Tokens()))
			turns.add(float64(len(m.Trajectory.Turns)))
			flight, queue := m.Staleness(b.Version)
			inFlight.add(float64(flight))
			inQueue.add(float64(queue))
			stale = max(stale, float64(flight+queue))
			t.totals.Trajectories++
			t.totals.Tokens += int64(m.Trajectory.Tokens())
			t.totals.ActionTokens += int64(m.Trajectory.ActionTokens())
		}
	}
	v["reward/mean"], v["reward/std"] = rewards.value(), rewards.deviation()
	if baselines.count > 0 {
		v["reward/baseline"] = baselines.value()
	}
	for name, m := range components {
		v["reward/component/"+name] = m.value()
	}
	for name, m := range sources {
		v["reward/source/"+name] = m.value()
	}
	for name, m := range tasks {
		v["reward/task/"+name] = m.value()
	}
	v["staleness/mean"], v["staleness/max"] = inFlight.value()+inQueue.value(), stale
	v["staleness/in_flight"], v["staleness/in_queue"] = inFlight.value(), inQueue.value()
	v["batch/groups"], v["batch/trajectories"] = float64(len(b.Groups)), lengths.count
	v["batch/passed_over"] = passed.count
	v["batch/tokens"], v["batch/length"], v["batch/turns"] = lengths.sum, lengths.value(), turns.value()
	for _, n := range t.now.refusals {
		t.totals.Rejected += n
	}
	t.totals.OptimizerSteps += int64(t.now.rate.count)
	t.totals.Wall += t.deps.Now().Sub(t.now.began)
	t.totals.Idle += t.now.wait
	t.now.values = v
}

// untold is a step that ended in a checkpoint and was not reported.
type untold struct {
	metrics map[string]float64
	at      time.Time
}

// report tells of the step that has just ended, and begins the next.
func (t *trainer) report() {
	now := t.deps.Now()
	m := &t.now
	defer func() { t.now = newMeasures(now) }()
	switch {
	case m.values != nil:
		v := t.values(now)
		if t.deps.Metrics != nil {
			t.deps.Metrics.step(v, m)
		}
		t.deps.Log.Debug("step done", "step", t.step, "reward", v["reward/mean"], "staleness", v["staleness/mean"], "idle", v["time/idle_ratio"])
		t.tell(v, now)
	case t.untold != nil:
		t.tell(t.untold.metrics, t.untold.at)
	}
	t.untold = nil
}

func (t *trainer) tell(metrics map[string]float64, at time.Time) {
	t.deps.Observer(schemas.Event{
		Run: t.deps.Stream.Run(), Type: schemas.EventStepDone, At: at.UTC(), Role: "trainer",
		Step: t.step, PolicyVersion: t.step, Metrics: metrics,
	})
}

// values are the metrics of the step so far.
func (t *trainer) values(now time.Time) map[string]float64 {
	m := &t.now
	v := maps.Clone(m.values)
	if m.rate.count > 0 { // else only the critic was trained
		v["loss/policy"] = m.loss / m.rate.count
		v["policy/entropy"], v["policy/mismatch_kl"] = m.entropy.Value(), m.mismatch.Value()
		v["optimizer/grad_norm"], v["optimizer/learning_rate"], v["optimizer/skipped"] = m.gradNorm.value(), m.rate.value(), float64(m.skipped)
	}
	if m.explained != nil {
		v["critic/explained_variance"], v["critic/learning_rate"] = *m.explained, m.criticRate.value()
	}
	if m.criticNorm.count > 0 || m.criticSkipped > 0 {
		v["critic/grad_norm"], v["critic/skipped"] = m.criticNorm.value(), float64(m.criticSkipped)
	}
	for name, mean := range m.losses {
		v["loss/"+name] = mean.Value()
	}
	for name, x := range m.offPolicy {
		v["off_policy/"+name] = x
	}
	for reason, n := range m.refusals {
		v["rejected/"+reason] = float64(n)
	}
	step := now.Sub(m.began).Seconds()
	v["time/step"], v["time/wait"], v["time/old_policy"] = step, m.wait.Seconds(), m.old.Seconds()
	v["time/update"], v["time/save"], v["time/publish"] = m.update.Seconds(), m.save.Seconds(), m.publish.Seconds()
	if step > 0 {
		v["time/idle_ratio"] = m.wait.Seconds() / step
		v["rate/trajectories"], v["rate/tokens"] = v["batch/trajectories"]/step, v["batch/tokens"]/step
	}
	if busy := m.old + m.update; busy > 0 {
		v["rate/train_tokens"] = v["batch/tokens"] / busy.Seconds()
	}
	waiting, ready, early := t.assembler.Counts()
	v["queue/groups_waiting"], v["queue/groups_ready"], v["queue/messages_early"] = float64(waiting), float64(ready), float64(early)
	v["admission/eta"], v["admission/depth"] = float64(t.eta), float64(t.put.depth)
	v["total/trajectories"], v["total/tokens"] = float64(t.totals.Trajectories), float64(t.totals.Tokens)
	v["total/rejected"], v["total/optimizer_steps"] = float64(t.totals.Rejected), float64(t.totals.OptimizerSteps)
	return v
}

// mean gathers count, mean and deviation.
type mean struct{ sum, squares, count float64 }

func (m *mean) add(x float64) {
	m.sum, m.squares, m.count = m.sum+x, m.squares+x*x, m.count+1
}

func (m *mean) value() float64 {
	if m.count == 0 {
		return 0
	}
	return m.sum / m.count
}

func (m *mean) deviation() float64 {
	if m.count == 0 {
		return 0
	}
	return math.Sqrt(max(0, m.squares/m.count-m.value()*m.value()))
}

func of(means map[string]*mean, name string) *mean {
	if means[name] == nil {
		means[name] = &mean{}
	}
	return means[name]
}

// reasons are all that a trajectory can be refused or passed over for, sorted.
func reasons() []string {
	all := []string{
		string(streams.ReasonMalformed), string(streams.ReasonVersion), string(streams.ReasonOversized),
		string(batch.ReasonStale), string(batch.ReasonDuplicate), string(batch.ReasonForeign),
		string(batch.ReasonPoisoned), string(batch.ReasonIncomplete), string(batch.ReasonZeroVariance), string(batch.ReasonLost),
	}
	slices.Sort(all)
	return all
}
