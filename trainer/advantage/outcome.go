package advantage

import (
	"encoding/json"
	"fmt"

	"github.com/weir-rl/weir/trainer/stats"
)

// group is what an outcome estimator compares: the trajectories of one prompt, one entry each.
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

// finite refuses advantages of a foreign formula that are not.
func (g group) finite(name string) error {
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
	// One entry a trajectory, those of a group next to each other.
	rewards, lengths, advantages []float64
	agents                       []int
	// kept is how many trajectories of each group count.
	kept, groupIDs []int
}

func (e *outcome) Name() string { return e.name }

func (e *outcome) Estimate(b *Batch, out *Result) error {
	if err := e.compare(b); err != nil {
		return err
	}
	return e.broadcast(b, out)
}

// compare fills the trajectories' advantages.
func (e *outcome) compare(b *Batch) error {
	if err := e.collect(b); err != nil {
		return err
	}
	if err := e.sum(b); err != nil {
		return err
	}
	for g := range e.layout.groups() {
		members := e.members(g)
		e.shape(b, g, members)
		if err := e.formula(e, members); err != nil {
			return err
		}
	}
	return nil
}

// broadcast gives every action token its trajectory's advantage, whitened over the batch's tokens if the estimator
// does so: long trajectories then weigh more.
func (e *outcome) broadcast(b *Batch, out *Result) error {
	off := 0.0
	if e.Whiten {
		var m stats.Moments
		for k, a := range e.advantages {
			m = m.Merge(stats.Moments{N: e.lengths[k], Mean: a})
		}
		f, err := e.whitening().Of(m)
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
	out.share(len(b.Mask))
	return stats.Parallel(len(e.advantages), len(b.Mask), func(lo, hi int) error {
		for k := lo; k < hi; k++ {
			for _, i := range e.layout.rowsOf(e.layout.trajectories[k]) {
				stats.Fill(out.Advantages[b.Offsets[i]:b.Offsets[i+1]], b.Mask[b.Offsets[i]:b.Offsets[i+1]], e.advantages[k], off)
			}
		}
		return nil
	})
}

// collect lays the batch out and makes room.
func (e *outcome) collect(b *Batch) error {
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
	if err := e.layout.build(b); err != nil {
		return err
	}
	if err := e.layout.buildGroups(ids, b.Rows()); err != nil {
		return err
	}
	if err := optional("Agent", b.Agent, b.Rows()); err != nil {
		return err
	}
	n := e.layout.count()
	e.rewards, e.lengths = stats.Resize(e.rewards, n), stats.Resize(e.lengths, n)
	e.advantages, e.agents = stats.Resize(e.advantages, n), stats.Resize(e.agents, n)
	e.kept = stats.Resize(e.kept, e.layout.groups())
	return nil
}

// sum adds up the trajectories' rewards and lengths, group by group.
func (e *outcome) sum(b *Batch) error {
	clear(e.advantages)
	err := stats.Parallel(e.layout.groups(), len(b.Mask), func(lo, hi int) error {
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
	for g := range e.layout.groups() {
		members := e.members(g)
		e.totals.trajectories += len(members.rewards)
		for _, r := range members.rewards {
			if r != 0 {
				e.totals.rewarded++
			}
		}
	}
	return nil
}

// sumGroup is sum of group g: those of its trajectories that count come before those that do not.
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

// members are the trajectories of group g that count.
func (e *outcome) members(g int) group {
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
		r, l, err := scoreRow(b, rewards, i, masked)
		if err != nil {
			return 0, 0, err
		}
		reward, length = reward+r, length+l
	}
	return reward, length, nil
}

// scoreRow is score of one row.
func scoreRow(b *Batch, rewards []float64, i int, masked bool) (reward, length float64, err error) {
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

// whitening is the one that the options choose.
func (w *whitener) whitening() stats.Whitening {
	return stats.Whitening{MeanEpsilon: w.CountEpsilon, VarianceEpsilon: w.WhitenEpsilon}
}

// whiten writes the advantages, from values of these moments that may be the advantages themselves, brought to mean 0
// and variance 1 and masked, as the options choose.
func (w *whitener) whitenTokens(from, advantages []float64, m []uint8, moments stats.Moments) error {
	f := stats.Identity()
	if w.Whiten {
		var err error
		if f, err = w.whitening().Of(moments); err != nil {
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

// State is the running means by agent of rae; nil for others.
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
