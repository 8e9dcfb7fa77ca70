package runfolder

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
)

// Query chooses trajectories.
type Query struct {
	// Fate and Reason are a Bar's; "" is any.
	Fate, Reason string
	// Step is the step that used the trajectory, or that noted its end; -1 is any.
	Step int64
	// Prefix begins the ids.
	Prefix string
	// Sort is newest, oldest, reward, -reward or staleness; "" is newest.
	Sort string
	// Offset and Limit cut a page out.
	Offset, Limit int
}

// Sorts returns the orders that a query can name.
func Sorts() []string { return []string{"newest", "oldest", "reward", "-reward", "staleness"} }

// Listed is a line of the list of trajectories.
type Listed struct {
	ID     string  `json:"id"`
	Group  string  `json:"group"`
	Fate   string  `json:"fate"`
	Reason string  `json:"reason,omitempty"`
	Step   int32   `json:"step"`
	Reward float32 `json:"reward"`
	// Rewarded reports whether the record has the reward: it has none of trajectories that no step used.
	Rewarded bool   `json:"rewarded"`
	Oldest   int32  `json:"oldest"`
	Newest   int32  `json:"newest"`
	Sequence uint64 `json:"sequence"`
	Facts    *Facts `json:"facts,omitempty"`
}

// Facts are the numbers and texts of a trajectory in the archive.
type Facts struct {
	Task   string `json:"task,omitempty"`
	Source string `json:"source,omitempty"`
	Prompt string `json:"prompt,omitempty"`
	// Question is the beginning of the question; Accepted the accepted answers. "" where the archive has none.
	Question string `json:"question,omitempty"`
	Accepted string `json:"accepted,omitempty"`
	Producer string `json:"producer,omitempty"`
	Stop     string `json:"stop,omitempty"`
	// Answer is the beginning of the answer; Detail says in words why it was refused.
	Answer  string  `json:"answer,omitempty"`
	Detail  string  `json:"detail,omitempty"`
	Tokens  int     `json:"tokens"`
	Sampled int     `json:"sampled"`
	Turns   int     `json:"turns"`
	Seconds float64 `json:"seconds"`
	Reward  float64 `json:"reward"`
}

// Page is a part of the list.
type Page struct {
	Total  int      `json:"total"`
	Offset int      `json:"offset"`
	Rows   []Listed `json:"rows"`
	// Generation changes when the record does.
	Generation uint64 `json:"generation"`
}

// List answers a query. usual is the size of a group where the record does not have any.
func (x *Steps) List(q Query, usual int) Page {
	if q.Fate == FateUnderway.String() || q.Fate == FateClosed.String() {
		return x.listAbsent(q, usual)
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	found := x.matchRows(q)
	page := Page{Total: len(found), Offset: q.Offset, Generation: x.generation, Rows: []Listed{}}
	found = found[min(q.Offset, len(found)):]
	for _, i := range found[:min(q.Limit, len(found))] {
		page.Rows = append(page.Rows, x.listRow(&x.rows[i]))
	}
	return page
}

func (x *Steps) listRow(r *row) Listed {
	return Listed{
		ID: x.ticketID(r), Group: r.groupID(), Fate: r.fate.String(), Reason: reasonName(r.reason), Step: r.step, Reward: r.reward,
		Rewarded: r.fate.Used(), Oldest: r.oldest, Newest: r.newest, Sequence: r.sequence,
	}
}

// matchRows returns the rows that a query chooses, in its order.
func (x *Steps) matchRows(q Query) []int32 {
	found := make([]int32, 0, len(x.rows))
	for i := range x.rows {
		r := &x.rows[i]
		switch {
		case q.Fate != "" && r.fate.String() != q.Fate,
			q.Reason != "" && reasonName(r.reason) != q.Reason,
			q.Step >= 0 && int64(r.step) != q.Step,
			q.Prefix != "" && !strings.HasPrefix(x.ticketID(r), q.Prefix):
			continue
		}
		found = append(found, int32(i))
	}
	by := func(less func(a, b *row) int) {
		slices.SortStableFunc(found, func(a, b int32) int { return less(&x.rows[a], &x.rows[b]) })
	}
	switch q.Sort {
	case "oldest":
	case "reward":
		by(func(a, b *row) int { return cmp.Compare(a.reward, b.reward) })
	case "-reward":
		by(func(a, b *row) int { return cmp.Compare(b.reward, a.reward) })
	case "staleness":
		by(func(a, b *row) int { return cmp.Compare(b.rowStaleness(), a.rowStaleness()) })
	default:
		slices.Reverse(found)
	}
	return found
}

// rowVerdict is the row as a Verdict.
func (l *Listed) rowVerdict() Verdict {
	v := Verdict{
		ID: l.ID, Group: l.Group, Step: int64(l.Step), Sequence: l.Sequence, Reward: float64(l.Reward),
		Oldest: int64(l.Oldest), Newest: int64(l.Newest), Reason: schemas.Reason(l.Reason),
	}
	v.Fate, _ = ParseFate(l.Fate)
	return v
}

// rowStaleness is how far the trainer was ahead of the oldest token; -1 where that is not known.
func (r *row) rowStaleness() int32 {
	if !r.fate.Used() || r.oldest < 0 {
		return -1
	}
	return r.step - 1 - r.oldest
}

// listAbsent lists the tickets of which no row tells: underway, or closed by a producer.
func (x *Steps) listAbsent(q Query, usual int) Page {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.issuedGroups(int32(usual), &sums{groups: map[string]int{}})
	for i := range x.rows {
		r := &x.rows[i]
		if g, ok := all[r.key]; ok && r.odd == 0 && int(r.sample) < len(g.fates) {
			g.fates[r.sample] = ended{FateTrained, 0} // whatever it is, a row tells of it
		}
	}
	keys := make([]key, 0, len(all))
	for k, g := range all {
		if g.open == (q.Fate == FateUnderway.String()) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(b.cursor, a.cursor), cmp.Compare(b.attempt, a.attempt)) })
	page := Page{Offset: q.Offset, Generation: x.generation, Rows: []Listed{}}
	for _, k := range keys {
		for s, e := range all[k].fates {
			id := batch.TicketID(k.cursor, int(k.attempt), s)
			if e.endingRank() > 0 || !strings.HasPrefix(id, q.Prefix) {
				continue
			}
			if page.Total >= q.Offset && len(page.Rows) < q.Limit {
				page.Rows = append(page.Rows, Listed{ID: id, Group: k.groupID(), Fate: q.Fate, Step: -1, Oldest: -1, Newest: -1})
			}
			page.Total++
		}
	}
	return page
}

// Find returns the rows of an id, the oldest first.
func (x *Steps) Find(id string) []Listed {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []Listed
	cursor, attempt, sample, ok := batch.ParseTicketID(id)
	for i := range x.rows {
		r := &x.rows[i]
		if ok && (r.odd != 0 || r.cursor != cursor || r.attempt != int32(attempt) || r.sample != int32(sample)) || !ok && x.ticketID(r) != id {
			continue
		}
		out = append(out, x.listRow(r))
	}
	return out
}

// Members returns the rows of a group.
func (x *Steps) Members(id string) []Listed {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k, ok := parseGroupID(id)
	if !ok {
		return nil
	}
	var out []Listed
	for i := range x.rows {
		if r := &x.rows[i]; r.key == k && r.odd == 0 {
			out = append(out, x.listRow(r))
		}
	}
	return out
}

// Issued reports whether an id is a ticket's of a group that the record has.
func (x *Steps) Issued(id string, usual int) bool {
	cursor, attempt, sample, ok := batch.ParseTicketID(id)
	if !ok {
		return false
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	g, ok := x.issuedGroups(int32(usual), &sums{groups: map[string]int{}})[key{cursor, int32(attempt)}]
	return ok && sample < len(g.fates)
}

// findStepLine returns a step's line; nil where the record has none.
func (x *Steps) findStepLine(step int64) *stepLine {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, line := range slices.Backward(x.steps) {
		if line.step == step {
			return &line
		}
	}
	return nil
}
