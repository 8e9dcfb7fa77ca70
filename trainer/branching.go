package trainer

import (
	"cmp"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/branch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// addOpenGroup adds an open group.
func (i *issuer) addOpenGroup(g checkpoint.OpenGroup) {
	id := g.Group().ID()
	i.open[id] = g
	if g.Trunks > 0 {
		i.branching[id] = g
	}
}

// ticketsOfTrunks returns the tickets of a group that do not wait for a trunk.
func (i *issuer) ticketsOfTrunks(g checkpoint.OpenGroup) []*schemas.Ticket {
	group := g.Group()
	return slices.DeleteFunc(i.groupTickets(g), func(t *schemas.Ticket) bool { return !group.First(t.Sample) })
}

// planForks plans the samples that waited for their group's trunks, for each group that awaits no trunk any more. Their forks depend on the
// trunks alone: a trainer that starts again and reads the trunks again comes to the same tickets, which the stream does not take twice. A
// sample without a fork point, or whose trunks were all refused or lost, begins from the prompt.
func (i *issuer) planForks() {
	var due []checkpoint.OpenGroup
	for id, g := range i.branching {
		if _, _, settled, open := i.assembler.Trunks(id); settled || !open {
			due = append(due, g)
			delete(i.branching, id)
		}
	}
	slices.SortFunc(due, func(a, b checkpoint.OpenGroup) int { return cmp.Compare(a.Index, b.Index) })
	for _, g := range due {
		id := g.Group().ID()
		trunks, rest, _, _ := i.assembler.Trunks(id)
		i.pending = append(i.pending, i.forkTickets(g, trunks, rest)...)
		i.assembler.Branched(id)
	}
}

// forkTickets returns the tickets of the samples that waited. Some of the samples may have come before this trainer began.
func (i *issuer) forkTickets(g checkpoint.OpenGroup, trunks []batch.Member, rest []int) []*schemas.Ticket {
	group := g.Group()
	parents := make([]*schemas.Trajectory, len(trunks))
	for k, m := range trunks {
		parents[k] = m.Trajectory
	}
	waited := 0
	for s := range group.Size {
		if !group.First(s) {
			waited++
		}
	}
	points := branch.Choose(i.cfg.Branch, parents, waited, i.vocab)
	all := i.groupTickets(g)
	out := make([]*schemas.Ticket, len(rest))
	for k, s := range rest {
		out[k] = all[s]
		if at := s - g.Trunks; at < len(points) {
			parent := parents[points[at].Trunk]
			out[k].Fork = schemas.ForkAt(parent, points[at].Turns, all[parent.Sample].Seed)
		}
	}
	return out
}
