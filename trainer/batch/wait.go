package batch

import (
	"cmp"
	"slices"
)

// deadline returns the last version at which every token that a group's tickets allow can still be trained on.
func (a *Assembler) deadline(g *openGroup) int64 { return g.MinVersion + int64(a.cfg.Eta) }

// findBlocking returns the group that the batch in sight has to wait for: an incomplete group that would fall out of the bound if the batch
// were taken without it; nil where there is none.
//
// The groups that the batch leaves are used in the order of their deadlines, Groups of them at each later version. Admission opens no more
// than (eta+1)*Groups groups at a time, so all of them can be in time if each batch that is taken leaves that possible. Waiting does not
// help a group that is ready, a group whose deadline has passed, as after eta was lowered, and a group that the caller no longer waits for.
func (a *Assembler) findBlocking() *openGroup {
	if !a.cfg.Wait {
		return nil
	}
	var left []*openGroup
	taken := 0
	for _, g := range a.order {
		switch {
		case g.ready && taken < a.cfg.Groups:
			taken++
		case a.deadline(g) >= a.version && (g.ready || !g.unawaited):
			left = append(left, g)
		}
	}
	slices.SortStableFunc(left, func(x, y *openGroup) int { return cmp.Compare(x.MinVersion, y.MinVersion) })
	var incomplete *openGroup
	for i, g := range left {
		if !g.ready && incomplete == nil {
			incomplete = g
		}
		if used := a.version + 1 + int64(i/a.cfg.Groups); used > a.deadline(g) && incomplete != nil {
			return incomplete
		}
	}
	return nil
}

// Blocking is the id of the group that the last Take waited for, with a batch otherwise complete; "" where it waited for none.
func (a *Assembler) Blocking() string { return a.blocking }

// StopAwaiting has Take no longer wait for a group: if it is late it is refused.
func (a *Assembler) StopAwaiting(group string) {
	if g, ok := a.open[group]; ok {
		g.unawaited = true
	}
}
