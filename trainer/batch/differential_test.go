package batch

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// plain is what an event caused without the words of a refusal, the verdicts by sequence.
func plain(e Effects) Effects {
	for i := range e.Verdicts {
		e.Verdicts[i].Detail = ""
	}
	slices.SortStableFunc(e.Verdicts, func(a, b Verdict) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return e
}

// Defect P20: changes of the assembler that no test noticed. Each event has the effects that the reference says it has, also
// over restarts.
func TestTheAssemblerDoesWhatTheReferenceDoes(t *testing.T) {
	t.Parallel()
	for range 10 { // for what takes several events to tell
		rapid.Check(t, differ)
	}
}

func differ(rt *rapid.T) {
	pick := func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(rt, name) }
	cfg := Config{
		Run: "r", Groups: pick("groups", 1, 3), MinGroup: pick("min", 1, 2), Eta: pick("eta", 0, 2), InOrder: rapid.Bool().Draw(rt, "in order"),
		Hold: max(0, pick("hold", -3, 1)), Rows: max(0, pick("rows", -8, 5)), Horizon: uint64(pick("horizon", 0, 3)), MaxEarly: pick("max early", 0, 3),
		Baseline: rapid.Bool().Draw(rt, "baseline"),
	}
	if rapid.Bool().Draw(rt, "drop") {
		cfg.Keep, cfg.MaxFlat = unequal, pick("max flat", 0, 2)
	}
	if cfg.MinGroup == 2 && pick("choose", 0, 3) == 0 { // all but the first
		cfg.Choose = func(_ Group, members []Member) (taken []int) {
			for i := range members[1:] {
				taken = append(taken, i+1)
			}
			return taken
		}
	}
	size := pick("size", cfg.MinGroup, 4)
	if cfg.Baseline {
		size++
	}
	a, r := New(cfg, Start{}), newReference(cfg)
	var sent []schemas.Delivery
	var again []Group
	seq, index, cursor := uint64(0), uint64(0), uint64(0)
	agree := func(got, want Effects) {
		require.Equal(rt, plain(want), plain(got))
		for _, d := range got.Drops {
			if d.Reissue {
				g := d.Group
				g.Attempt++
				again = append(again, g)
			}
		}
	}
	open := func(g Group) {
		g.Index, g.Size, g.HasBaseline = index, size, cfg.Baseline
		index++
		agree(a.Open(g), r.Open(g))
	}
	send := func(d schemas.Delivery) {
		seq++
		d.Sequence = seq
		sent = append(sent, d)
		agree(a.Add(d), r.Add(d))
	}
	version := func(low int64) int32 { return int32(rapid.Int64Range(max(0, low), r.version+1).Draw(rt, "version")) }
	rollout := func(c uint64, attempt, sample int, of int32) *schemas.Trajectory {
		tr := trajectory(c, attempt, sample, size, float64(pick("reward", 0, 1)), of, max(of, int32(r.version)))
		if cfg.Baseline && sample == size-1 {
			greedy(tr)
		}
		return tr
	}
	for range pick("events", 1, 100) {
		switch pick("event", 0, 15) {
		case 0, 1, 2:
			open(Group{Cursor: cursor})
			cursor++
		case 3, 4:
			if len(again) > 0 {
				g := again[0]
				again = again[1:]
				open(g)
			}
		case 5:
			agree(a.Advance(r.version+1), r.Advance(r.version+1))
		case 6:
			if pick("really", 0, 2) == 0 {
				agree(a.GiveUp(), r.GiveUp())
			}
		case 7:
			if len(sent) > 0 {
				d := rapid.SampledFrom(sent).Draw(rt, "again")
				agree(a.Add(d), r.Add(d))
			}
		case 8:
			m := closed(rapid.Uint64Range(0, cursor+3).Draw(rt, "cursor"), pick("attempt", 0, 1), rapid.SliceOfN(rapid.IntRange(-1, size), 0, 3).Draw(rt, "cancelled")...)
			if pick("run", 0, 7) == 0 {
				m.Run = "another"
			}
			send(schemas.Delivery{Closed: m})
		case 9: // what is wrong
			tr := rollout(rapid.Uint64Range(0, cursor).Draw(rt, "cursor"), 0, pick("sample", 0, size-1), version(r.version))
			switch pick("fault", 0, 6) {
			case 0:
				tr.Run = "another"
			case 1:
				tr.ID += "0"
			case 2:
				tr.GroupSize++
			case 3:
				tr.Stop = schemas.StopError
			case 4:
				tr.Segments[0].ActionMask = make(schemas.Bytes, len(tr.Segments[0].ActionMask))
			case 5:
				tr.Segments[0].Temperature = 1 - tr.Segments[0].Temperature
			case 6:
				tr.Sample, tr.ID = size, TicketID(tr.Cursor, tr.Attempt, size)
			}
			send(schemas.Delivery{Trajectory: tr})
		case 10, 11, 12: // a whole group, for the most part of use
			if len(r.open) > 0 {
				g := rapid.SampledFrom(r.open).Draw(rt, "group").Group
				of := int32(r.version)
				for s := range size {
					if pick("lacks", 0, 9) > 0 {
						send(schemas.Delivery{Trajectory: rollout(g.Cursor, g.Attempt, s, of)})
					}
				}
			}
		case 13:
			if rapid.Bool().Draw(rt, "carry") {
				require.Equal(rt, a.Carry(), a.Carried())
			}
			carried, refused := slices.Concat(a.Carried(), sent), a.Refused() // the stream is read again
			a = New(cfg, Start{Version: r.version, NextCursor: r.next, Flat: a.Flat(), Ledger: stored(rt, a.Ledger())})
			r = r.restart()
			for _, g := range r.open {
				require.Empty(rt, a.Open(g.Group).Drops)
			}
			a.Refuse(refused)
			for c, attempt := range r.last {
				a.Await(c, attempt)
			}
			for _, d := range carried {
				want := r.Add(d)
				e := a.Add(d)
				require.True(rt, len(e.Drops) == 0 || cfg.InOrder, "a restart ends nothing but what waited for a short batch to be taken")
				agree(e, want)
			}
		default:
			send(schemas.Delivery{Trajectory: rollout(rapid.Uint64Range(0, cursor+3).Draw(rt, "cursor"), pick("attempt", 0, 1), pick("sample", 0, size-1), version(r.version-2))})
		}
		compare(rt, a, r, seq)
		b, err := a.Take()
		require.NoError(rt, err)
		want, e := r.Take()
		if b == nil {
			require.Nil(rt, want)
			continue
		}
		require.Equal(rt, want, idsOf(b))
		agree(a.Commit(), e)
		compare(rt, a, r, seq)
	}
}

// stored is a ledger as a checkpoint gives it back.
func stored(t *rapid.T, l Ledger) (out Ledger) {
	data, err := json.Marshal(l)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &out))
	return out
}

func idsOf(b *Batch) (out [][]string) {
	for _, g := range b.Groups {
		var ids []string
		for _, m := range g.Used() {
			ids = append(ids, m.Trajectory.ID)
		}
		out = append(out, ids)
	}
	return out
}

// compare holds what an assembler tells of itself against the reference.
func compare(t *rapid.T, a *Assembler, r *reference, highest uint64) {
	ready, rows := r.ready()
	waiting, counted, early := a.Counts()
	require.Equal(t, []int{len(r.open) - len(ready), len(ready), len(r.early)}, []int{waiting, counted, early})
	gathered, groups, all := a.Gathered()
	require.Equal(t, []any{rows, r.flat + len(ready), len(ready) == len(r.open)}, []any{gathered, groups, all})
	require.Equal(t, r.Awaited(), a.Awaited())
	require.Equal(t, r.Refused(), a.Refused())
	require.Equal(t, r.Unfillable(), a.Unfillable())
	l := a.Ledger()
	for seq := uint64(1); seq <= highest; seq++ {
		has := (seq <= l.Low || slices.Contains(l.Above, seq)) && !slices.Contains(l.Carried, seq)
		require.Equal(t, r.ended[seq], has, "sequence %d, ledger %v", seq, l)
	}
	require.True(t, slices.IsSorted(l.Above) && slices.IsSorted(l.Carried))
	if len(l.Above) > 0 {
		require.Greater(t, l.Above[0], l.Low, "the mark stands below nothing that could raise it")
	}
}
