package batch

import (
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// reference is the assembler in the plainest words: lists that are searched, and every group judged after every event.
type reference struct {
	cfg     Config
	version int64
	next    uint64
	flat    int
	open    []*refGroup // by Index
	last    map[uint64]int
	early   []schemas.Delivery
	ended   map[uint64]bool
	seen    []schemas.Delivery // that have not ended, by arrival
	gone    []string           // dropped by the last Advance while awaited
	givenUp []string
}

// refGroup has one entry a sample in each list.
type refGroup struct {
	Group
	have      []*schemas.Delivery
	cancelled []bool
	refused   []bool
	markers   []schemas.Delivery
	ready     bool
	lost      bool
}

func newReference(cfg Config) *reference {
	return &reference{cfg: cfg, last: map[uint64]int{}, ended: map[uint64]bool{}}
}

func (r *reference) find(id string) *refGroup {
	for _, g := range r.open {
		if g.ID() == id {
			return g
		}
	}
	return nil
}

func (r *reference) future(cursor uint64, attempt int) bool {
	last, awaited := r.last[cursor]
	return cursor >= r.next && cursor < r.next+r.cfg.Horizon || cursor < r.next && awaited && attempt > last
}

func (r *reference) ends(e *Effects, seq uint64, id string, reason schemas.Reason) {
	v := Verdict{Sequence: seq, ID: id, State: Settled, Reason: reason}
	if reason != "" {
		v.State = Rejected
	}
	e.Verdicts = append(e.Verdicts, v)
	r.ended[seq] = true
	r.seen = slices.DeleteFunc(r.seen, func(d schemas.Delivery) bool { return d.Sequence == seq })
}

func (r *reference) Open(g Group) (e Effects) {
	opened := &refGroup{Group: g, have: make([]*schemas.Delivery, g.Size), cancelled: make([]bool, g.Size), refused: make([]bool, g.Size)}
	r.open = append(r.open, opened)
	slices.SortFunc(r.open, func(a, b *refGroup) int { return int(a.Index) - int(b.Index) })
	r.last[g.Cursor], r.next = g.Attempt, max(r.next, g.Cursor+1)
	early := r.early
	r.early = nil
	for _, d := range early {
		if groupCursor(d) <= g.Cursor {
			r.place(d, &e)
		} else {
			r.early = append(r.early, d)
		}
	}
	r.judge(&e)
	return e
}

func (r *reference) Add(d schemas.Delivery) (e Effects) {
	if r.ended[d.Sequence] {
		return Effects{Verdicts: []Verdict{{Sequence: d.Sequence, State: Settled}}}
	}
	if slices.ContainsFunc(r.seen, func(s schemas.Delivery) bool { return s.Sequence == d.Sequence }) {
		return e
	}
	r.seen = append(r.seen, d)
	r.place(d, &e)
	r.judge(&e)
	return e
}

func (r *reference) keep(d schemas.Delivery, id string, e *Effects) {
	for _, k := range r.early {
		if id != "" && k.Trajectory != nil && k.Trajectory.ID == id {
			r.ends(e, d.Sequence, id, schemas.ReasonDuplicate)
			return
		}
	}
	if r.cfg.MaxEarly > 0 && len(r.early) >= r.cfg.MaxEarly {
		r.ends(e, d.Sequence, id, schemas.ReasonForeign)
		return
	}
	r.early = append(r.early, d)
}

func (r *reference) place(d schemas.Delivery, e *Effects) {
	if m := d.Closed; m != nil {
		g := r.find(m.Group)
		cursor, attempt, named := ParseGroupID(m.Group)
		switch {
		case m.Run != r.cfg.Run:
			r.ends(e, d.Sequence, "", schemas.ReasonForeign)
		case g == nil && named && len(m.Cancelled) > 0 && r.future(cursor, attempt):
			r.keep(d, "", e)
		case g == nil:
			r.ends(e, d.Sequence, "", "")
		default:
			news := false
			for _, s := range m.Cancelled {
				if s >= 0 && s < g.Size && g.have[s] == nil && !g.cancelled[s] {
					g.cancelled[s], news = true, true
				}
			}
			if news {
				g.markers = append(g.markers, d)
			} else {
				r.ends(e, d.Sequence, "", "")
			}
		}
		return
	}
	t := d.Trajectory
	g := r.find(t.Group)
	last, awaited := r.last[t.Cursor]
	refuse := func(reason schemas.Reason) { r.ends(e, d.Sequence, t.ID, reason) }
	switch {
	case t.Run != r.cfg.Run || t.ID != TicketID(t.Cursor, t.Attempt, t.Sample) || t.Group != GroupID(t.Cursor, t.Attempt) || t.Attempt < 0 || t.Sample < 0:
		refuse(schemas.ReasonForeign)
	case g == nil && r.future(t.Cursor, t.Attempt):
		r.keep(d, t.ID, e)
	case g == nil && t.Cursor >= r.next:
		refuse(schemas.ReasonForeign)
	case g == nil && awaited && t.Attempt < last:
		refuse(schemas.ReasonStale)
	case g == nil:
		refuse(schemas.ReasonDuplicate)
	case t.GroupSize != g.Size || t.Sample >= g.Size:
		refuse(schemas.ReasonForeign)
	case g.have[t.Sample] != nil || g.ready:
		refuse(schemas.ReasonDuplicate)
	case t.Stop == schemas.StopError || t.ActionTokens() == 0 || (t.Segments[0].Temperature == 0) != g.Greedy(t.Sample):
		refuse(schemas.ReasonPoisoned)
		g.cancelled[t.Sample], g.refused[t.Sample] = true, true
	default:
		g.have[t.Sample], g.cancelled[t.Sample], g.refused[t.Sample] = &d, false, false
		for _, m := range slices.Clone(g.markers) {
			if !slices.Contains(m.Closed.Cancelled, t.Sample) {
				continue
			}
			for s := range g.Size { // what else it says is kept
				g.refused[s] = g.refused[s] || g.cancelled[s] && slices.Contains(m.Closed.Cancelled, s)
			}
			r.ends(e, m.Sequence, "", "")
			g.markers = slices.DeleteFunc(g.markers, func(o schemas.Delivery) bool { return o.Sequence == m.Sequence })
		}
	}
}

func (g *refGroup) awaited() (n int) {
	for s := range g.Size {
		if g.have[s] == nil && !g.cancelled[s] {
			n++
		}
	}
	return n
}

// samples are those that came, without the baseline.
func (g *refGroup) samples() (out []*schemas.Delivery) {
	for s, d := range g.have {
		if d != nil && !g.Greedy(s) {
			out = append(out, d)
		}
	}
	return out
}

func (r *reference) ready() (groups []*refGroup, rows int) {
	for _, g := range r.open {
		if g.ready {
			groups, rows = append(groups, g), rows+r.rows(g)
		}
	}
	return groups, rows
}

func (r *reference) rows(g *refGroup) (n int) {
	for i, d := range g.samples() {
		if i > 0 || r.cfg.Choose == nil {
			n += len(d.Trajectory.Segments)
		}
	}
	return n
}

func (r *reference) short() bool {
	ready, _ := r.ready()
	return r.cfg.MaxFlat > 0 && r.flat >= r.cfg.MaxFlat && len(ready) > 0
}

func (r *reference) judge(e *Effects) {
	for _, g := range slices.Clone(r.open) {
		if r.cfg.InOrder && (r.short() || g.awaited() > 0) {
			return
		}
		if !g.ready && g.awaited() == 0 {
			r.decide(g, false, e)
		}
	}
}

// unusable refuses what a trainer of the version may not use, and says whether some of it was stale.
func (r *reference) unusable(g *refGroup, e *Effects) (stale bool) {
	for s, d := range g.have {
		if d == nil {
			continue
		}
		reason := schemas.Reason("")
		if r.version-d.Trajectory.OldestVersion() > int64(r.cfg.Eta) {
			reason, stale = schemas.ReasonStale, true
		}
		if d.Trajectory.NewestVersion() > r.version {
			reason = schemas.ReasonForeign
		}
		if reason != "" {
			r.ends(e, d.Sequence, d.Trajectory.ID, reason)
			g.have[s], g.cancelled[s], g.refused[s] = nil, true, true
		}
	}
	return stale
}

func (r *reference) decide(g *refGroup, accepted bool, e *Effects) {
	stale := r.unusable(g, e)
	if len(g.samples()) < r.cfg.MinGroup || r.cfg.Baseline && (!g.HasBaseline || g.have[g.Size-1] == nil) {
		reason := schemas.ReasonIncomplete
		if g.lost {
			reason = schemas.ReasonLost
		}
		if stale {
			reason = schemas.ReasonStale
		}
		r.drop(g, schemas.ReasonIncomplete, Drop{Group: g.Group, Reason: reason, Reissue: true, Accepted: accepted}, e)
		return
	}
	var rewards []float64
	for i, d := range g.samples() {
		if i > 0 || r.cfg.Choose == nil {
			rewards = append(rewards, d.Trajectory.Reward)
		}
	}
	if r.cfg.Keep != nil && slices.Min(rewards) == slices.Max(rewards) {
		r.flat++
		r.drop(g, schemas.ReasonZeroVariance, Drop{Group: g.Group, Reason: schemas.ReasonZeroVariance, Accepted: accepted}, e)
		return
	}
	g.ready = true
	if !accepted {
		e.Ready = append(e.Ready, g.Group)
	}
}

func (r *reference) drop(g *refGroup, reason schemas.Reason, d Drop, e *Effects) {
	for _, m := range g.have {
		if m != nil {
			r.ends(e, m.Sequence, m.Trajectory.ID, reason)
		}
	}
	r.close(g, e)
	if !d.Reissue {
		delete(r.last, g.Cursor)
	}
	e.Drops = append(e.Drops, d)
}

func (r *reference) close(g *refGroup, e *Effects) {
	for _, m := range g.markers {
		r.ends(e, m.Sequence, "", "")
	}
	r.open = slices.DeleteFunc(r.open, func(o *refGroup) bool { return o == g })
}

func (r *reference) Advance(version int64) (e Effects) {
	r.version, r.gone, r.givenUp = version, r.givenUp, nil
	for _, g := range slices.Clone(r.open) {
		switch {
		case g.ready:
			g.ready = false
			r.decide(g, true, &e)
		case r.cfg.InOrder && r.cfg.Eta == 0:
			r.unusable(g, &e)
			r.gone = append(r.gone, g.ID())
			r.drop(g, schemas.ReasonIncomplete, Drop{Group: g.Group, Reason: schemas.ReasonStale, Reissue: true}, &e)
		}
	}
	for _, d := range slices.Clone(r.early) {
		if d.Trajectory != nil && version-d.Trajectory.OldestVersion() > int64(r.cfg.Eta) {
			r.early = slices.DeleteFunc(r.early, func(k schemas.Delivery) bool { return k.Sequence == d.Sequence })
			r.ends(&e, d.Sequence, d.Trajectory.ID, schemas.ReasonStale)
		}
	}
	r.judge(&e)
	return e
}

func (r *reference) GiveUp() (e Effects) {
	for _, g := range r.open {
		if g.awaited() == 0 {
			continue
		}
		for s := range g.Size {
			if g.have[s] == nil && !g.cancelled[s] {
				g.cancelled[s], g.refused[s] = true, true
				e.Lost = append(e.Lost, TicketID(g.Cursor, g.Attempt, s))
			}
		}
		g.lost = true
		r.givenUp = append(r.givenUp, g.ID())
	}
	r.judge(&e)
	return e
}

// Take are the ids of the batch that is due, by group, and ends it.
func (r *reference) Take() (batch [][]string, e Effects) {
	ready, rows := r.ready()
	due := len(ready) >= r.cfg.Groups*(1+r.cfg.Hold)
	if r.cfg.Rows > 0 {
		due = rows >= r.cfg.Rows && (r.cfg.Eta > 0 || len(ready) == len(r.open))
	}
	if !due && !r.short() {
		return nil, e
	}
	rows = 0
	for i, g := range ready {
		if r.cfg.Rows == 0 && i == r.cfg.Groups || r.cfg.Rows > 0 && r.cfg.Eta > 0 && rows >= r.cfg.Rows {
			break
		}
		rows += r.rows(g)
		var ids []string
		for _, d := range g.have {
			if d != nil {
				ids = append(ids, d.Trajectory.ID)
				e.Verdicts = append(e.Verdicts, Verdict{Sequence: d.Sequence, ID: d.Trajectory.ID, State: Trained})
				r.ended[d.Sequence] = true
				r.seen = slices.DeleteFunc(r.seen, func(s schemas.Delivery) bool { return s.Sequence == d.Sequence })
			}
		}
		batch = append(batch, ids)
		r.close(g, &e)
		delete(r.last, g.Cursor)
	}
	r.flat = 0
	return batch, e
}

func (r *reference) Unfillable() []string {
	ids := slices.Clone(r.gone)
	for _, g := range r.open {
		if g.ready || g.awaited() == 0 {
			continue
		}
		samples, baseline := 0, false
		for s, d := range g.have {
			if !g.cancelled[s] && (d == nil || r.version-d.Trajectory.OldestVersion() <= int64(r.cfg.Eta)) {
				if g.Greedy(s) {
					baseline = true
				} else {
					samples++
				}
			}
		}
		if samples < r.cfg.MinGroup || r.cfg.Baseline && !baseline {
			ids = append(ids, g.ID())
		}
	}
	return ids
}

func (r *reference) Refused() (out []Refused) {
	for _, g := range r.open {
		var samples []int
		for s, refused := range g.refused {
			if refused {
				samples = append(samples, s)
			}
		}
		if samples != nil {
			out = append(out, Refused{g.ID(), samples})
		}
	}
	return out
}

func (r *reference) Awaited() (n int) {
	for _, g := range r.open {
		n += g.awaited()
	}
	return n
}

// restart is a trainer that begins from what this one knew, and is given again what had not ended.
func (r *reference) restart() *reference {
	next := newReference(r.cfg)
	next.version, next.flat, next.ended, next.next = r.version, r.flat, r.ended, r.next
	for _, g := range r.open {
		next.Open(g.Group)
	}
	next.last = r.last
	for _, was := range r.Refused() {
		for _, s := range was.Samples {
			g := next.find(was.Group)
			g.cancelled[s], g.refused[s] = true, true
		}
	}
	return next
}
