package batch

import (
	"fmt"

	"github.com/weir-rl/weir/schemas"
)

// awaited counts the samples that are issued and have neither come nor been cancelled.
func (g *assembly) awaited() int {
	n := 0
	for s := range g.Size {
		if _, came := g.members[s]; !came && !g.cancelled[s] && g.issued(s) {
			n++
		}
	}
	return n
}

// Trunks are what has come of the samples of a group that are issued first, by sample: those that can be used at this version, the baseline
// left out. rest are the samples that wait for them and have not come all the same, as after a restart. settled says that no trunk
// is awaited any more: the rest is to be issued now, and Branched called. ok is false of a group that is not open.
func (a *Assembler) Trunks(group string) (trunks []Member, rest []int, settled, ok bool) {
	g, ok := a.open[group]
	if !ok {
		return nil, nil, false, false
	}
	for s := range g.Size {
		m, came := g.members[s]
		switch {
		case g.Greedy(s):
		case g.First(s) && came && m.Newest <= a.version && a.version-m.Oldest <= int64(a.cfg.Eta):
			trunks = append(trunks, m)
		case g.First(s) && !came && !g.cancelled[s]:
			return nil, nil, false, true
		case !g.First(s) && !came && !g.cancelled[s]:
			rest = append(rest, s)
		}
	}
	return trunks, rest, true, true
}

// Branched says that all samples of a group are issued, so that from now on each may be lost.
func (a *Assembler) Branched(group string) {
	if g, ok := a.open[group]; ok {
		g.branched = true
	}
}

// forks holds a trajectory that says it forks another one against its group.
func (g *assembly) forks(t *schemas.Trajectory) error {
	f := t.Forked
	if f == nil {
		return nil
	}
	cursor, attempt, parent, ok := ParseTicketID(f.Parent)
	if g.First(t.Sample) || !ok || cursor != g.Cursor || attempt != g.Attempt || parent >= g.Trunks {
		return fmt.Errorf("%w: it forks %.80q, and sample %d of a group with %d trunks does not", errForeign, f.Parent, t.Sample, g.Trunks)
	}
	return nil
}
