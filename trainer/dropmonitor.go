package trainer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// ErrStuck is returned when a step finds nothing to learn from and Config.StopWhenStuck is set.
var ErrStuck = errors.New("nothing can be learnt")

// dropMonitor reports steps that find little to learn from.
type dropMonitor struct {
	// before counts the groups that an earlier process dropped for the step in hand; their rewards are not known.
	before int
	// sparse counts the steps of this process for which hardly any group was kept.
	sparse int
	// step has the dropped rollouts of the step in hand.
	step droppedRollouts
}

// droppedRollouts sums up the rollouts that were dropped for a step because their groups have equal rewards.
type droppedRollouts struct {
	// reported is how many groups were dropped at the last report.
	reported    int
	rollouts    int
	least, most float64 // rewards
	// components are the largest values of each component of the rewards.
	components map[string]float64
	// stops count the rollouts by why they ended.
	stops map[schemas.StopReason]int
	// logprob is the sum over the sampled tokens, sampled their number.
	logprob, sampled float64
}

// maxComponents bounds the reward components that are kept: their names come from producers.
const maxComponents = 16

// addRollout takes one rollout of a dropped group.
func (d *dropMonitor) addRollout(t *schemas.Trajectory) { d.step.addRollout(t) }

// addRollout adds one rollout of a dropped group.
func (d *droppedRollouts) addRollout(t *schemas.Trajectory) {
	if d.rollouts == 0 {
		d.least, d.most, d.components, d.stops = math.Inf(1), math.Inf(-1), map[string]float64{}, map[schemas.StopReason]int{}
	}
	d.rollouts++
	d.stops[t.Stop]++
	d.least, d.most = min(d.least, t.Reward), max(d.most, t.Reward)
	for name, r := range t.Rewards {
		if _, known := d.components[name]; !known && len(d.components) == maxComponents {
			continue
		}
		d.components[name] = max(d.components[name], r)
	}
	for i := range t.Segments {
		s := &t.Segments[i]
		for k, on := range s.ActionMask {
			if on != 0 {
				d.logprob += float64(s.Logprobs[k])
				d.sampled++
			}
		}
	}
}

// certainNats is the nats a sampled token below which a policy gives the same answer each time.
const certainNats = 0.02

// diagnose returns the likely cause, read from the rewards, and its remedy. coldStart is how many steps the cold start has: without a cold
// start none can be shortened.
func (d *droppedRollouts) diagnose(coldStart int64) string {
	if d.rollouts == 0 {
		return ""
	}
	nats := -d.logprob / max(1, d.sampled)
	sure := ""
	if nats < certainNats {
		remedy := "raise trainer.sampling.temperature, or begin a new run with a policy that is less certain"
		if coldStart > 0 {
			remedy = "lower trainer.cold_start.steps or raise trainer.cold_start.enough, in a new run, or raise trainer.sampling.temperature"
		}
		sure = fmt.Sprintf(" The policy is all but certain of each token (%.3f nats): %s.", nats, remedy)
	}
	never := slices.DeleteFunc(slices.Sorted(maps.Keys(d.components)), func(name string) bool { return d.components[name] > 0 })
	switch {
	case d.least < d.most:
		if sure == "" {
			sure = " Raise trainer.sampling.temperature, or trainer.group_size."
		}
		return fmt.Sprintf(" The policy answers each question the same way every time: some get reward %.4g in all samples, some %.4g.%s", d.least, d.most, sure)
	case d.most <= 0 || len(never) > 0:
		what := ""
		if len(never) > 0 {
			what = fmt.Sprintf(" (never: %s)", strings.Join(never, ", "))
		}
		return fmt.Sprintf(" The policy never succeeds: each of %d rollouts got reward %.4g%s.%s "+
			"Ask easier questions, or give more or better demonstrations.%s",
			d.rollouts, d.most, what, d.describeLimit(), sure)
	default:
		return fmt.Sprintf(" The policy always succeeds: each of %d rollouts got reward %.4g. Nothing is left to learn here: ask harder questions.%s",
			d.rollouts, d.most, sure)
	}
}

// describeLimit names the limit that ended nearly all rollouts; "" where none did.
func (d *droppedRollouts) describeLimit() string {
	for stop, key := range map[schemas.StopReason]string{
		schemas.StopTurns: "max_turns", schemas.StopTokens: "max_tokens", schemas.StopTimeout: "timeout", schemas.StopSegments: "max_segments",
	} {
		if 10*d.stops[stop] >= 9*d.rollouts {
			return fmt.Sprintf(" %d of them were stopped by %s: the agent may ask on and on, or trainer.limits.%s is too low.",
				d.stops[stop], stop, key)
		}
	}
	return ""
}

// stuckThreshold returns how many groups are dropped, with none kept, before the run reports that it learns nothing.
func (c Config) stuckThreshold() int {
	if c.MaxDroppedGroups > 0 {
		return c.MaxDroppedGroups
	}
	return DefaultConfig().MaxDroppedGroups
}

// manyDrops is how many groups are dropped for each group kept before the log warns.
const manyDrops = 32

// reportDrops reports the groups dropped for this step, at each doubling of their number: without reports the run would seem to stand
// still. Where no group is kept it gives the likely cause, and fails if StopWhenStuck is set.
func (i *intake) reportDrops() error {
	d := &i.drops.step
	before, dropped := d.reported, i.assembler.Flat()-i.drops.before
	d.reported = dropped
	limit := i.cfg.stuckThreshold()
	if !crossedDoubling(before, dropped, 1) && !crossedDoubling(before, dropped, limit) {
		return nil
	}
	version, kept := i.assembler.Version(), i.Counts().ready
	e := schemas.Event{
		Run: i.deps.Stream.Name(), Type: schemas.EventDropped, At: i.deps.Now().UTC(), Role: "trainer", Step: version + 1, PolicyVersion: version,
		Metrics: map[string]float64{metrics.GatherDropped.Name: float64(dropped), metrics.GatherKept.Name: float64(kept)},
	}
	var stuck error
	switch {
	case kept == 0 && crossedDoubling(before, dropped, limit):
		stuck = fmt.Errorf("%w: the samples of each of %d questions have equal rewards.%s "+
			"(trainer.selection.drop_zero_variance=false goes on without learning from such questions.)", ErrStuck, dropped, d.diagnose(i.cfg.ColdStart.Steps))
		e.Message = stuck.Error()
		i.deps.Log.Warn(e.Message, "step", version+1, "dropped", dropped, "kept", kept)
	case kept > 0 && kept*manyDrops <= dropped:
		if i.drops.sparse++; i.drops.sparse&(i.drops.sparse-1) == 0 {
			i.deps.Log.Warn("the samples of nearly every question have equal rewards: the step waits for others; use more questions, "+
				"easier or harder ones, or set trainer.selection.drop_zero_variance=false", "step", version+1, "dropped", dropped, "kept", kept)
		}
	}
	i.deps.Observer(e)
	if i.cfg.StopWhenStuck {
		return stuck
	}
	return nil
}

// crossedDoubling reports whether a count has reached base, or base times a power of two, since it was before.
func crossedDoubling(before, now, base int) bool {
	for n := base; n <= now; n *= 2 {
		if n > before {
			return true
		}
	}
	return false
}
