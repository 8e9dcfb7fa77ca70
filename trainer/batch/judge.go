package batch

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// judgeOpen judges the touched group, for no other can have become complete, or every open group if touched is nil. With InOrder it judges
// the complete groups up to the first incomplete group.
func (a *Assembler) judgeOpen(touched *openGroup, e *Effects) {
	if !a.cfg.InOrder && touched != nil {
		if !touched.ready && touched.isComplete() {
			a.judgeGroup(touched, false, e)
		}
		return
	}
	for i := 0; i < len(a.order); {
		g := a.order[i]
		switch {
		case a.cfg.InOrder && a.isShortDue() && !(a.cfg.Wait && a.ready >= a.cfg.Groups):
			return // later groups are for the next batch, however many of them have arrived
		case g.ready:
		case g.isComplete():
			a.judgeGroup(g, false, e)
		case a.cfg.InOrder:
			return
		}
		if i < len(a.order) && a.order[i] == g {
			i++ // it was not dropped
		}
	}
}

// judgeGroup makes a complete group ready or drops it. accepted is set if the group was ready before.
func (a *Assembler) judgeGroup(g *openGroup, accepted bool, e *Effects) {
	stale := g.refuseUnusable(a.version, a.cfg.Eta, e)
	if len(g.sortedSamples()) < a.cfg.MinGroup || a.cfg.Baseline && g.greedyMember() == nil {
		reason := schemas.ReasonIncomplete
		switch {
		case stale > 0:
			reason = schemas.ReasonStale
		case g.lost:
			reason = schemas.ReasonLost
		}
		a.dropGroup(g, Drop{Group: g.Group, Reason: reason, Reissue: true, Accepted: accepted}, e)
		return
	}
	chosen := a.chooseSamples(g)
	if !a.keepsGroup(g, chosen) {
		a.flat++
		a.dropGroup(g, Drop{Group: g.Group, Reason: schemas.ReasonZeroVariance, Accepted: accepted}, e)
		return
	}
	g.ready, g.chosen, g.rows = true, chosen, trainedRows(chosen)
	a.ready, a.readyRows = a.ready+1, a.readyRows+g.rows
	if !accepted {
		e.Ready = append(e.Ready, g.Group)
	}
}

// withdrawReady takes a group out of the ready groups.
func (a *Assembler) withdrawReady(g *openGroup) {
	a.ready, a.readyRows = a.ready-1, a.readyRows-g.rows
	g.ready, g.chosen, g.rows = false, nil, 0
}

func (a *Assembler) keepsGroup(g *openGroup, chosen []Member) bool {
	if a.cfg.Keep == nil {
		return true
	}
	return slices.ContainsFunc(comparedReturns(chosen, a.cfg.EpisodeAgents), func(rewards []float64) bool { return a.cfg.Keep(g.Group, rewards) })
}

// chooseSamples returns a group's samples, with PassedOver set on each that is not trained on.
func (a *Assembler) chooseSamples(g *openGroup) []Member {
	samples := g.sortedSamples()
	if a.cfg.Choose == nil {
		return samples
	}
	taken := a.cfg.Choose(g.Group, samples)
	for i := range samples {
		samples[i].PassedOver = !slices.Contains(taken, i)
	}
	return samples
}

func (a *Assembler) dropGroup(g *openGroup, d Drop, e *Effects) {
	reason := d.Reason
	if reason == schemas.ReasonStale || reason == schemas.ReasonLost {
		reason = schemas.ReasonIncomplete // the members that are left are neither stale nor lost
	}
	for _, m := range g.sortedMembers() {
		e.addRejected(m.Sequence, m.Trajectory.ID, reason, fmt.Sprintf("group %s was dropped: %s", g.ID(), d.Reason))
	}
	for _, m := range g.markers {
		e.addSettled(m.Sequence)
	}
	a.closeGroup(g)
	if !d.Reissue {
		delete(a.attempts, g.Cursor)
	}
	e.Drops = append(e.Drops, d)
}
