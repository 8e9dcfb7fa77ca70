package batch

import (
	"fmt"

	"github.com/weir-rl/weir/schemas"
)

// countAwaited counts the samples that are issued and have neither come nor been cancelled.
func (g *openGroup) countAwaited() int {
	n := 0
	for s := range g.Size {
		if _, came := g.members[s]; !came && !g.cancelled[s] && g.isIssued(s) {
			n++
		}
	}
	return n
}

// Trunks returns the members of a group that were issued first and can be used at this version, by sample, without the baseline. rest are
// the samples that wait for the trunks, without samples that have already come, as after a restart. settled is set if no trunk is awaited
// any more: the rest is to be issued now, and Branched called. ok is false of a group that is not open.
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

// Branched notes that all samples of a group are issued, so that from now on each may be lost.
func (a *Assembler) Branched(group string) {
	if g, ok := a.open[group]; ok {
		g.branched = true
	}
}

// checkFork checks a forked trajectory's parent against its group.
func (g *openGroup) checkFork(t *schemas.Trajectory) error {
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
