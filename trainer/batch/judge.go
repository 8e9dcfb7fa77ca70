package batch

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// judge looks at the group that something came of, for no other can have become complete, or at all with nil. In order,
// it looks at the complete groups up to the first one that is not.
func (a *Assembler) judge(touched *assembly, e *Effects) {
	if !a.cfg.InOrder && touched != nil {
		if !touched.ready && touched.complete() {
			a.judgeGroup(touched, false, e)
		}
		return
	}
	for i := 0; i < len(a.order); {
		g := a.order[i]
		switch {
		case a.cfg.InOrder && a.short():
			return // what comes later is for the next batch, however much of it has arrived
		case g.ready:
		case g.complete():
			a.judgeGroup(g, false, e)
		case a.cfg.InOrder:
			return
		}
		if i < len(a.order) && a.order[i] == g {
			i++ // it was not dropped
		}
	}
}

// judgeGroup makes a complete group ready or drops it. accepted says that it was ready before.
func (a *Assembler) judgeGroup(g *assembly, accepted bool, e *Effects) {
	stale := g.refuseUnusable(a.version, a.cfg.Eta, e)
	if len(g.samples()) < a.cfg.MinGroup || a.cfg.Baseline && g.baseline() == nil {
		reason := schemas.ReasonIncomplete
		switch {
		case stale > 0:
			reason = schemas.ReasonStale
		case g.lost:
			reason = schemas.ReasonLost
		}
		a.drop(g, Drop{Group: g.Group, Reason: reason, Reissue: true, Accepted: accepted}, e)
		return
	}
	chosen := a.choose(g)
	if !a.keep(g, chosen) {
		a.flat++
		a.drop(g, Drop{Group: g.Group, Reason: schemas.ReasonZeroVariance, Accepted: accepted}, e)
		return
	}
	g.ready, g.chosen, g.rows = true, chosen, trainedRows(chosen)
	a.ready, a.readyRows = a.ready+1, a.readyRows+g.rows
	if !accepted {
		e.Ready = append(e.Ready, g.Group)
	}
}

// unready takes a group out of the ready ones.
func (a *Assembler) unready(g *assembly) {
	a.ready, a.readyRows = a.ready-1, a.readyRows-g.rows
	g.ready, g.chosen, g.rows = false, nil, 0
}

func (a *Assembler) keep(g *assembly, chosen []Member) bool {
	if a.cfg.Keep == nil {
		return true
	}
	return slices.ContainsFunc(returns(chosen, a.cfg.EpisodeAgents), func(rewards []float64) bool { return a.cfg.Keep(g.Group, rewards) })
}

// choose are a group's samples, those that are not trained on marked.
func (a *Assembler) choose(g *assembly) []Member {
	samples := g.samples()
	if a.cfg.Choose == nil {
		return samples
	}
	taken := a.cfg.Choose(g.Group, samples)
	for i := range samples {
		samples[i].PassedOver = !slices.Contains(taken, i)
	}
	return samples
}

func (a *Assembler) drop(g *assembly, d Drop, e *Effects) {
	reason := d.Reason
	if reason == schemas.ReasonStale || reason == schemas.ReasonLost {
		reason = schemas.ReasonIncomplete // the members left are neither themselves
	}
	for _, m := range g.sorted() {
		e.reject(m.Sequence, m.Trajectory.ID, reason, fmt.Sprintf("group %s was dropped: %s", g.ID(), d.Reason))
	}
	for _, m := range g.markers {
		e.settle(m.Sequence)
	}
	a.close(g)
	if !d.Reissue {
		delete(a.attempts, g.Cursor)
	}
	e.Drops = append(e.Drops, d)
}
