package runfolder

import (
	"cmp"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// Accounting is where every ticket of a run went, as its record of steps has it. Issued is the sum of all bars that are not
// Sum bars, and each Sum bar is the rest below it.
type Accounting struct {
	// Step is the step whose record is the newest; -1 where there is none.
	Step   int64 `json:"step"`
	Issued int   `json:"issued"`
	Bars   []Bar `json:"bars"`
	// Groups counts the groups of the tickets by their fate, Again the prompts that wait to be issued again.
	Groups map[string]int `json:"groups"`
	Again  int            `json:"again"`
	// Further counts the messages after the first for a ticket, by reason: the second copy of a trajectory, or a trajectory of a group
	// that was never issued.
	Further map[string]int `json:"further"`
	// Unsure counts the groups whose size the record does not say, so that the size of their neighbours was taken.
	Unsure int `json:"unsure"`
}

// Bar is a part of the waterfall.
type Bar struct {
	// Fate and Reason choose the trajectories behind the bar; Fate is "" of a Sum bar.
	Fate   string `json:"fate"`
	Reason string `json:"reason"`
	Label  string `json:"label"`
	// Count is how many tickets the bar takes away, or how many are left, of a Sum bar.
	Count int `json:"count"`
	// Left is how many are left below the bar.
	Left int    `json:"left"`
	Sum  bool   `json:"sum"`
	What string `json:"what"`
}

// sums are the counts behind an Accounting.
type sums struct {
	issued, underway, lost, closed int
	refused, dropped               map[uint8]int
	baseline, passedOver, trained  int
	further                        map[uint8]int
	groups                         map[string]int
	unsure                         int
	// of are the sums of the tickets of each source.
	of map[string]*sums
}

func newOutcomeSums() *sums {
	return &sums{refused: map[uint8]int{}, dropped: map[uint8]int{}, further: map[uint8]int{}, groups: map[string]int{}, of: map[string]*sums{}}
}

// samples are the fates of a group's tickets, by sample.
type samples struct {
	fates  []ended
	open   bool
	source string
}

type ended struct {
	fate   Fate
	reason uint8
}

// endingRank orders the ends that a record may have for a ticket: an end that a step used counts before all, and a message that is
// refused as a copy counts last.
func (e ended) endingRank() int {
	switch {
	case e.fate.Used():
		return 5
	case e.fate == FateDropped:
		return 4
	case e.fate == FateRefused && e.reason != reasonIndex["duplicate"]:
		return 3
	case e.fate == FateLost:
		return 2
	case e.fate == FateRefused:
		return 1
	}
	return 0
}

// countTickets returns the sums of the record. The caller holds the lock.
func (x *Steps) countTickets(usual int32) *sums {
	if x.sums != nil {
		return x.sums
	}
	s := newOutcomeSums()
	all := x.issuedGroups(usual, s)
	for i := range x.rows {
		r := &x.rows[i]
		if r.again {
			continue // its first use counts
		}
		g, issued := all[r.key]
		if !issued || r.odd > 0 || int(r.sample) >= len(g.fates) {
			s.further[r.reason]++
			continue
		}
		now := ended{r.fate, r.reason}
		was := &g.fates[r.sample]
		if was.endingRank() > 0 {
			if now.endingRank() <= was.endingRank() {
				s.further[r.reason]++
				continue
			}
			s.further[was.reason]++
		}
		*was = now
	}
	for _, g := range all {
		of := s.of[g.source]
		if of == nil {
			of = newOutcomeSums()
			s.of[g.source] = of
		}
		of.issued += len(g.fates)
		for _, e := range g.fates {
			s.countTicket(e, g.open)
			of.countTicket(e, g.open)
		}
	}
	x.sums = s
	return s
}

// issuedGroups returns the groups that were issued, each with a ticket for every sample.
func (x *Steps) issuedGroups(usual int32, s *sums) map[key]samples {
	all := make(map[key]samples, len(x.groups))
	size := func(g *group) int32 {
		if g.size > 0 {
			usual = g.size
		} else {
			s.unsure++
		}
		return max(g.size, 0)
	}
	most := map[key]int32{} // of the groups whose size is not recorded: the samples that ended
	for i := range x.groups {
		g := &x.groups[i]
		if g.size == 0 {
			most[g.key] = 0
		}
	}
	if len(most) > 0 {
		for i := range x.rows {
			if n, wanted := most[x.rows[i].key]; wanted && x.rows[i].odd == 0 {
				most[x.rows[i].key] = max(n, x.rows[i].sample+1)
			}
		}
	}
	put := func(k key, n int32, open bool, fate, source string) {
		if _, twice := all[k]; twice {
			return // the audit tells of it
		}
		all[k] = samples{make([]ended, max(n, most[k])), open, source}
		s.issued += len(all[k].fates)
		s.groups[fate]++
	}
	for i := range x.groups {
		g := &x.groups[i]
		put(g.key, cmp.Or(size(g), usual), false, g.fate.String(), g.source)
	}
	if last := x.newestLine(); last != nil {
		for _, g := range last.open {
			put(g.key, usual, true, FateUnderway.String(), g.source)
		}
	}
	return all
}

// countTicket counts a ticket.
func (s *sums) countTicket(e ended, open bool) {
	switch {
	case e.endingRank() == 0 && open:
		s.underway++
	case e.endingRank() == 0:
		s.closed++
	case e.fate == FateTrained:
		s.trained++
	case e.fate == FateBaseline:
		s.baseline++
	case e.fate == FatePassedOver:
		s.passedOver++
	case e.fate == FateDropped:
		s.dropped[e.reason]++
	case e.fate == FateLost:
		s.lost++
	default:
		s.refused[e.reason]++
	}
}

// Accounting lays the sums out as a waterfall. usual is the size of a group where the record does not have any.
func (x *Steps) Accounting(usual int) Accounting {
	x.mu.Lock() // the sums are kept
	defer x.mu.Unlock()
	s := x.countTickets(int32(usual))
	a := Accounting{Step: -1, Issued: s.issued, Groups: s.groups, Further: map[string]int{}, Unsure: s.unsure}
	if last := x.newestLine(); last != nil {
		a.Step, a.Again = last.step, last.again
	}
	for reason, n := range s.further {
		a.Further[cmp.Or(reasonName(reason), otherReason)] += n
	}
	left := s.issued
	sum := func(label, what string) {
		a.Bars = append(a.Bars, Bar{Label: label, Count: left, Left: left, Sum: true, What: what})
	}
	less := func(fate Fate, reason, label string, n int, what string) {
		if n == 0 && fate != FateUnderway {
			return
		}
		left -= n
		a.Bars = append(a.Bars, Bar{Fate: fate.String(), Reason: reason, Label: label, Count: n, Left: left, What: what})
	}
	sum("issued", "tickets of all groups that were issued by the newest record")
	less(FateUnderway, "", "underway", s.underway, "tickets of open groups: waiting, leased, or delivered and waiting for the rest of their group")
	less(FateLost, "", "lost", s.lost, "no trajectory came and nothing was left that one could come from; their groups were judged without them or issued again")
	less(FateClosed, "", "closed by a producer", s.closed, "a producer gave the rollout up: cancelled as too old, failed, or its group could not be used any more")
	sum("published", "a trajectory of the ticket came")
	eachByCount(s.refused, func(reason string, n int) {
		less(FateRefused, reason, "refused: "+reason, n, reasonTexts[schemas.Reason(reason)])
	})
	sum("admitted", "in order, and fresh enough to be trained on")
	eachByCount(s.dropped, func(reason string, n int) {
		less(FateDropped, reason, "dropped: "+reason, n, reasonTexts[schemas.Reason(reason)])
	})
	sum("used", "a step used the trajectory up")
	less(FateBaseline, "", "baseline", s.baseline, "greedy rollouts with which others were compared")
	less(FatePassedOver, "", "passed over", s.passedOver, "the selection took other samples of the group")
	a.Bars = append(a.Bars, Bar{
		Fate: FateTrained.String(), Label: "trained", Count: left, Left: left, Sum: true,
		What: "each entered one optimizer step, or as many as trainer.reuse says",
	})
	return a
}

// eachByCount goes through counts by reason, the largest first.
func eachByCount(counts map[uint8]int, each func(reason string, n int)) {
	keys := make([]uint8, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b uint8) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, k := range keys {
		each(reasonName(k), counts[k])
	}
}
