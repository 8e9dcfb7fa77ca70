package runfolder

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// The kinds of groups by their rewards.
const (
	GroupMixed    = "mixed"    // rewards differ: there is something to compare
	GroupSolved   = "solved"   // all rewards are the highest that the run has seen
	GroupUnsolved = "unsolved" // all rewards are equal and lower
	GroupOpen     = "open"     // fewer than two rewards are known
)

// GroupRow is a group in a line: a prompt and the rewards of its samples.
type GroupRow struct {
	ID   string `json:"id"`
	Step int32  `json:"step"`
	// Fate and Reason are those of most of its members.
	Fate   string `json:"fate"`
	Reason string `json:"reason,omitempty"`
	// Facts are those of a member in the archive; nil where it has none.
	Facts   *Facts        `json:"facts,omitempty"`
	Members []GroupMember `json:"members"`
	// Kind is mixed, solved, unsolved or open; Mean is the mean of the rewards that are known.
	Kind string  `json:"kind"`
	Mean float64 `json:"mean"`
}

// GroupMember is a sample of a group.
type GroupMember struct {
	ID   string `json:"id"`
	Fate string `json:"fate"`
	// Reward is nil where it is not known; Answer is the beginning of the answer.
	Reward *float64 `json:"reward"`
	Answer string   `json:"answer"`

	sequence uint64
	used     bool
}

// GroupPage is a part of the list of groups.
type GroupPage struct {
	Total      int        `json:"total"`
	Offset     int        `json:"offset"`
	Rows       []GroupRow `json:"rows"`
	Generation uint64     `json:"generation"`
	// Top is the highest reward that the archive has.
	Top float64 `json:"top"`
}

// Groups returns the groups that a query chooses, the newest first, or by Sort oldest, reward or -reward. A group is chosen when the query
// chooses one of its rows.
func (f *Folder) Groups(q Query) GroupPage {
	groups, generation := f.Steps.groupRows(q)
	top := f.topReward()
	switch q.Sort {
	case "oldest":
		slices.Reverse(groups)
	case "reward", "-reward":
		for i := range groups {
			f.Archive.addToGroup(&groups[i], top)
		}
		sign := map[string]int{"reward": 1, "-reward": -1}[q.Sort]
		slices.SortStableFunc(groups, func(a, b GroupRow) int { return sign * cmp.Compare(a.Mean, b.Mean) })
	}
	page := GroupPage{Total: len(groups), Offset: q.Offset, Generation: generation, Rows: []GroupRow{}, Top: top}
	groups = groups[min(q.Offset, len(groups)):]
	page.Rows = append(page.Rows, groups[:min(q.Limit, len(groups))]...)
	for i := range page.Rows {
		f.Archive.addToGroup(&page.Rows[i], top)
	}
	return page
}

// groupRows returns the groups that a query chooses, the newest first, with their members as the record has them.
func (x *Steps) groupRows(q Query) ([]GroupRow, uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	chosen := map[key]bool{}
	for _, i := range x.matchRows(Query{Fate: q.Fate, Reason: q.Reason, Step: q.Step, Prefix: q.Prefix, Sort: "oldest"}) {
		if r := &x.rows[i]; r.odd == 0 {
			chosen[r.key] = true
		}
	}
	at := map[key]int{}
	groups := []GroupRow{}
	for _, r := range slices.Backward(x.rows) {
		if r.odd > 0 || !chosen[r.key] {
			continue
		}
		i, seen := at[r.key]
		if !seen {
			i = len(groups)
			at[r.key] = i
			groups = append(groups, GroupRow{ID: r.groupID(), Step: r.step})
		}
		g := &groups[i]
		if r.fate.Used() || g.Fate == "" {
			g.Fate, g.Reason, g.Step = r.fate.String(), reasonName(r.reason), r.step
		}
		g.Members = append(g.Members, groupMember(x.ticketID(&r), &r))
	}
	for i := range groups {
		slices.SortStableFunc(groups[i].Members, func(a, b GroupMember) int {
			return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), strings.Compare(a.ID, b.ID), preferUsed(a, b)) // a ticket may be served twice
		})
		groups[i].Members = slices.CompactFunc(groups[i].Members, func(a, b GroupMember) bool { return a.ID == b.ID })
	}
	return groups, x.generation
}

// preferUsed puts the message of a ticket that a step used before a message of the same ticket that none used.
func preferUsed(a, b GroupMember) int {
	if a.used == b.used {
		return 0
	}
	if a.used {
		return -1
	}
	return 1
}

func groupMember(id string, r *row) GroupMember {
	m := GroupMember{ID: id, Fate: r.fate.String(), sequence: r.sequence, used: r.fate.Used()}
	if r.fate.Used() {
		reward := float64(r.reward)
		m.Reward = &reward
	}
	return m
}

// addToGroup puts the archive's rewards and facts into a group, and judges it.
func (f *Archive) addToGroup(g *GroupRow, top float64) {
	var rewards []float64
	for i := range g.Members {
		m := &g.Members[i]
		if facts := f.FactsOf(m.ID, m.sequence); facts != nil {
			m.Answer = facts.Answer
			if m.Reward == nil {
				m.Reward = &facts.Reward
			}
			if g.Facts == nil {
				g.Facts = facts
			}
		}
		if m.Reward != nil {
			rewards = append(rewards, *m.Reward)
		}
	}
	g.Kind, g.Mean = kindOfGroup(rewards, top)
}

// kindOfGroup judges a group by its rewards.
func kindOfGroup(rewards []float64, top float64) (kind string, mean float64) {
	const near = 1e-6
	for _, r := range rewards {
		mean += r / float64(len(rewards))
	}
	switch {
	case len(rewards) < 2:
		return GroupOpen, mean
	case slices.Max(rewards)-slices.Min(rewards) > near:
		return GroupMixed, mean
	case rewards[0] >= top-near:
		return GroupSolved, mean
	}
	return GroupUnsolved, mean
}

// topReward returns the highest reward of the run, by the archive and the record; 0 where neither has any.
func (f *Folder) topReward() float64 {
	top := max(f.Archive.topReward(), f.Steps.topReward())
	if math.IsInf(top, -1) {
		return 0
	}
	return top
}

// topReward returns the highest reward in the archive; -Inf where it is empty.
func (f *Archive) topReward() float64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	top := math.Inf(-1)
	for i := range f.all {
		top = max(top, f.all[i].Reward)
	}
	return top
}

// topReward returns the highest reward that the record has; -Inf where it has none.
func (x *Steps) topReward() float64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	top := math.Inf(-1)
	for i := range x.rows {
		if r := &x.rows[i]; r.fate.Used() {
			top = max(top, float64(r.reward))
		}
	}
	return top
}
