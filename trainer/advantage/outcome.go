package advantage

import (
	"encoding/json"
	"fmt"

	"github.com/weir-rl/weir/trainer/stats"
)

// group is the input of an outcome estimator: the trajectories of a prompt, with an entry for each.
type group struct {
	// rewards are summed over the trajectory's rows and tokens.
	rewards []float64
	// lengths count its action tokens.
	lengths []float64
	// agents acted in it.
	agents []int
	// advantages are to be filled.
	advantages []float64
	// size counts also the trajectories without action tokens, which have no entry.
	size int
}

// checkFinite refuses a foreign formula's advantages that are not finite.
func (g group) checkFinite(name string) error {
	for i, a := range g.advantages {
		if !stats.Finite(a) {
			return fmt.Errorf("%s: the advantage of reward %v among %v is %v: it must be finite", name, g.rewards[i], g.rewards, a)
		}
	}
	return nil
}

// totals are taken over the whole batch before any group is compared.
type totals struct{ trajectories, rewarded int }

// outcome gives every action token of a trajectory the same advantage, from the rewards of its group.
type outcome struct {
	name string
	whitener
	Alone
	Comparing
	formula formula
	// regroup, when set, makes the groups other than by prompt.
	regroup func(e *outcome, b *Batch) error

	layout layout
	totals totals
	// baselines are running means of rewards by agent.
	baselines map[int]float64
	// An entry for each trajectory, the entries of a group next to each other.
	rewards, lengths, advantages []float64
	agents                       []int
	// kept is how many trajectories of each group count.
	kept, groupIDs []int
}

func (e *outcome) Name() string { return e.name }

func (e *outcome) Estimate(b *Batch, out *Result) error {
	if err := e.compareGroups(b); err != nil {
		return err
	}
	return e.spreadAdvantages(b, out)
}

// compareGroups fills the trajectories' advantages.
func (e *outcome) compareGroups(b *Batch) error {
	if err := e.layOutBatch(b); err != nil {
		return err
	}
	if err := e.sumRewards(b); err != nil {
		return err
	}
	for g := range e.layout.groupCount() {
		members := e.countedMembers(g)
		e.shapeRewards(b, g, members)
		if err := e.formula(e, members); err != nil {
			return err
		}
	}
	return nil
}

// spreadAdvantages gives every action token its trajectory's advantage, whitened over the batch's tokens if the estimator does so: long
// trajectories then weigh more. long trajectories then weigh more.
func (e *outcome) spreadAdvantages(b *Batch, out *Result) error {
	off := 0.0
	if e.Whiten {
		var m stats.Moments
		for k, a := range e.advantages {
			m = m.Merge(stats.Moments{N: e.lengths[k], Mean: a})
		}
		f, err := e.chosenWhitening().Of(m)
		if err != nil {
			return err
		}
		for k, a := range e.advantages {
			e.advantages[k] = f.At(a)
		}
		off = f.At(0)
	}
	if e.MaskAdvantages {
		off = 0
	}
	out.resizeShared(len(b.Mask))
	return stats.Parallel(len(e.advantages), len(b.Mask), func(lo, hi int) error {
		for k := lo; k < hi; k++ {
			for _, i := range e.layout.rowsOf(e.layout.trajectories[k]) {
				stats.Fill(out.Advantages[b.Offsets[i]:b.Offsets[i+1]], b.Mask[b.Offsets[i]:b.Offsets[i+1]], e.advantages[k], off)
			}
		}
		return nil
	})
}

// layOutBatch lays the batch out and makes room.
func (e *outcome) layOutBatch(b *Batch) error {
	if err := checkRewards(b); err != nil {
		return err
	}
	ids := b.Group
	if e.regroup != nil {
		if err := e.regroup(e, b); err != nil {
			return err
		}
		ids = e.groupIDs
	}
	if err := e.layout.buildRows(b); err != nil {
		return err
	}
	if err := e.layout.buildGroups(ids, b.Rows()); err != nil {
		return err
	}
	if err := checkOptional("Agent", b.Agent, b.Rows()); err != nil {
		return err
	}
	n := e.layout.trajectoryCount()
	e.rewards, e.lengths = stats.Resize(e.rewards, n), stats.Resize(e.lengths, n)
	e.advantages, e.agents = stats.Resize(e.advantages, n), stats.Resize(e.agents, n)
	e.kept = stats.Resize(e.kept, e.layout.groupCount())
	return nil
}

// sumRewards adds up the trajectories' rewards and lengths, group by group.
func (e *outcome) sumRewards(b *Batch) error {
	clear(e.advantages)
	err := stats.Parallel(e.layout.groupCount(), len(b.Mask), func(lo, hi int) error {
		for g := lo; g < hi; g++ {
			if err := e.sumGroup(b, g); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.totals = totals{}
	for g := range e.layout.groupCount() {
		members := e.countedMembers(g)
		e.totals.trajectories += len(members.rewards)
		for _, r := range members.rewards {
			if r != 0 {
				e.totals.rewarded++
			}
		}
	}
	return nil
}

// sumGroup is sumRewards of group g: trajectories that count come before trajectories that do not.
func (e *outcome) sumGroup(b *Batch, g int) (err error) {
	e.layout.emptyLast(b, g, e.CountEmpty)
	e.kept[g] = 0
	for k := e.layout.groupStart[g]; k < e.layout.groupStart[g+1]; k++ {
		rows := e.layout.rowsOf(e.layout.trajectories[k])
		if e.rewards[k], e.lengths[k], err = scoreRows(b, b.Rewards, rows, e.MaskRewards); err != nil {
			return err
		}
		e.agents[k] = 0
		if b.Agent != nil {
			e.agents[k] = b.Agent[rows[0]]
		}
		if e.lengths[k] != 0 || e.CountEmpty {
			e.kept[g]++
		}
	}
	return nil
}

// countedMembers returns the trajectories of group g that count.
func (e *outcome) countedMembers(g int) group {
	lo := e.layout.groupStart[g]
	hi := lo + e.kept[g]
	return group{
		rewards: e.rewards[lo:hi], lengths: e.lengths[lo:hi], agents: e.agents[lo:hi], advantages: e.advantages[lo:hi],
		size: e.layout.groupStart[g+1] - lo,
	}
}

// scoreRows sums given rewards and counts the action tokens of a trajectory's rows.
func scoreRows(b *Batch, rewards []float64, rows []int, masked bool) (reward, length float64, err error) {
	for _, i := range rows {
		r, l, err := scoreSingleRow(b, rewards, i, masked)
		if err != nil {
			return 0, 0, err
		}
		reward, length = reward+r, length+l
	}
	return reward, length, nil
}

// scoreSingleRow is scoreRows of a single row.
func scoreSingleRow(b *Batch, rewards []float64, i int, masked bool) (reward, length float64, err error) {
	x := rewards[b.Offsets[i]:b.Offsets[i+1]]
	reward, n := stats.Sum(x, b.Mask[b.Offsets[i]:b.Offsets[i+1]])
	if !masked {
		reward = stats.Total(x)
	}
	if !stats.Finite(reward) {
		return 0, 0, tokenFault(b, i, masked, field{"Rewards", rewards})
	}
	return reward, float64(n), nil
}

// chosenWhitening returns the whitening that the options choose.
func (w *whitener) chosenWhitening() stats.Whitening {
	return stats.Whitening{MeanEpsilon: w.CountEpsilon, VarianceEpsilon: w.WhitenEpsilon}
}

// whiten writes the advantages, from values of these moments that may be the advantages themselves, brought to mean 0
// and variance 1 and masked, as the options choose.
func (w *whitener) whitenTokens(from, advantages []float64, m []uint8, moments stats.Moments) error {
	f := stats.Identity()
	if w.Whiten {
		var err error
		if f, err = w.chosenWhitening().Of(moments); err != nil {
			return err
		}
	}
	return stats.Parallel(len(m), len(m), func(lo, hi int) error {
		if w.MaskAdvantages {
			f.Masked(from[lo:hi], m[lo:hi], advantages[lo:hi])
		} else {
			f.All(from[lo:hi], advantages[lo:hi])
		}
		return nil
	})
}

// State is the running means by agent of rae; nil for other formulas.
func (e *outcome) State() ([]byte, error) {
	if len(e.baselines) == 0 {
		return nil, nil
	}
	return json.Marshal(e.baselines)
}

// Restore goes on from a state.
func (e *outcome) Restore(state []byte) error {
	e.baselines = nil
	if state == nil {
		return nil
	}
	if err := json.Unmarshal(state, &e.baselines); err != nil {
		return fmt.Errorf("running means by agent: %w", err)
	}
	return nil
}
