package audit

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func member(id string, seq uint64, oldest int64) checkpoint.RecordMember {
	return checkpoint.RecordMember{ID: id, Sequence: seq, Oldest: oldest, Newest: oldest}
}

// honest is a run of two steps: group 0 trained, group 1 dropped for good, group 2 dropped and issued again,
// group 3 trained, group 4 open.
func honest() []checkpoint.Record {
	return []checkpoint.Record{
		{Step: 0, Created: born, NextCursor: 2, Open: []string{"g000000-a0", "g000001-a0"}},
		{
			Step: 1, Created: born, NextCursor: 4,
			Groups:   []checkpoint.RecordGroup{{Group: "g000000-a0", Members: []checkpoint.RecordMember{member("g000000-a0-0", 1, 0)}}},
			Rejected: []checkpoint.RecordRejection{{ID: "g000001-a0-0", Sequence: 2, Reason: schemas.ReasonZeroVariance}},
			Dropped:  []checkpoint.RecordDrop{{Group: "g000001-a0", Cursor: 1, Reason: schemas.ReasonZeroVariance}},
			Open:     []string{"g000002-a0", "g000003-a0"},
		},
		{
			Step: 2, Created: born, NextCursor: 5,
			Groups:   []checkpoint.RecordGroup{{Group: "g000003-a0", Members: []checkpoint.RecordMember{member("g000003-a0-0", 4, 0)}}},
			Rejected: []checkpoint.RecordRejection{{ID: "g000002-a0-0", Sequence: 3, Reason: schemas.ReasonStale}},
			Dropped:  []checkpoint.RecordDrop{{Group: "g000002-a0", Cursor: 2, Reason: schemas.ReasonStale, Reissue: true}},
			Again:    []checkpoint.Again{{Cursor: 2, Attempt: 1}},
			Open:     []string{"g000004-a0"},
		},
	}
}

// baseline gives the group of a step one.
func baseline(r []checkpoint.Record, step int, seq uint64, oldest int64) {
	m := member("g000003-a0-1", seq, oldest)
	r[step].Groups[0].Baseline = &m
}

func seen(id string, seq uint64) Seen { return Seen{ID: id, Sequence: seq, Created: born, Oldest: -1} }

// saw is a witness of a stream that holds everything from 5 on, of which the ledger has ended 6.
func saw(messages ...Seen) *Witness {
	return &Witness{Seen: messages, Created: born, First: 5, Ledger: batch.Ledger{Low: 4, Above: []uint64{6}}}
}

func TestAnHonestRunPasses(t *testing.T) {
	t.Parallel()
	w := saw(seen("g000000-a0-0", 1), seen("g000001-a0-0", 2), seen("g000002-a0-0", 3), seen("g000003-a0-0", 4),
		seen("g000004-a0-0", 5), seen("", 6))
	w.Refused = []Refused{{Sequence: 6, Created: born, Reason: "malformed"}}
	r := Check(honest(), Bounds{Eta: 1}, w)
	require.NoError(t, r.Err())
	require.EqualValues(t, 2, r.Steps)
	require.Equal(t, 2, r.Trained)
	require.Equal(t, 1, r.Pending)
	require.Equal(t, 6, r.Witnessed)
	require.Zero(t, r.Unwitnessed)
	require.EqualValues(t, 1, r.MaxStaleness)
}

// A version that was learnt again is reported, and is no fault.
func TestAVersionThatWasLearntAgainIsReported(t *testing.T) {
	t.Parallel()
	records := honest()
	records[2].Drift = &checkpoint.Drift{From: 0, Share: 0.004, Changed: 0.1}
	r := Check(records, Bounds{Eta: 1}, nil)
	require.NoError(t, r.Err())
	require.Equal(t, []string{
		"version 2 was learnt again from step 0, 0.4 % of its way from the published version, with which the run went on",
	}, r.LearntAgain.First)
}

// Finding 7 of the ninth reader: the audit of a shadow that began at a later step of its run missed the steps and prompts before.
func TestAShadowBeginsAtAStepOfItsRun(t *testing.T) {
	t.Parallel()
	of := func(begins bool) []checkpoint.Record {
		first := checkpoint.Record{
			Step: 1, Created: born, NextCursor: 4, Forked: &checkpoint.RecordFork{Parent: "run", Begins: begins}, Again: []checkpoint.Again{{Cursor: 2}, {Cursor: 3}},
		}
		return []checkpoint.Record{first, honest()[2]}
	}
	require.NoError(t, Check(of(true), Bounds{Eta: 1}, nil).Err())
	require.ErrorContains(t, Check(of(false), Bounds{Eta: 1}, nil).Err(), "prompts_skipped=2 steps_missing=1", "a fork whose first lines are gone")
	lacks := of(true)
	lacks[1].Groups = nil
	require.ErrorContains(t, Check(lacks, Bounds{Eta: 1}, nil).Err(), "prompts_skipped=1")
}

func TestABaselineIsAccountedFor(t *testing.T) {
	t.Parallel()
	records := honest()
	baseline(records, 2, 3, 1)
	records[2].Rejected = nil
	r := Check(records, Bounds{Eta: 1}, saw(seen("g000000-a0-0", 1), seen("g000001-a0-0", 2), seen("g000003-a0-1", 3), seen("g000003-a0-0", 4)))
	require.NoError(t, r.Err())
	require.Equal(t, 2, r.Trained)
	require.Equal(t, 1, r.Baselines)
	require.Zero(t, r.Unwitnessed)
}

func TestEachFaultIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		spoil   func([]checkpoint.Record)
		witness *Witness
		eta     int
		want    string
	}{
		{
			"twice", func(r []checkpoint.Record) { r[2].Groups[0].Members[0].ID = "g000000-a0-0" }, nil, 1,
			"lost=0 twice=1 stale_over_bound=0 prompts_skipped=0 steps_missing=0 contradicted=0 lines_changed=0",
		},
		{
			"lost", func([]checkpoint.Record) {}, saw(seen("g000003-a0-7", 6)), 1,
			"lost=1 twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 contradicted=0 lines_changed=0",
		},
		{"stale", func([]checkpoint.Record) {}, nil, 0, "lost=0 twice=0 stale_over_bound=1 prompts_skipped=0 steps_missing=0 contradicted=0 lines_changed=0"},
		{
			"skipped", func(r []checkpoint.Record) { r[2].Again = nil }, nil, 1,
			"lost=0 twice=0 stale_over_bound=0 prompts_skipped=1 steps_missing=0 contradicted=0 lines_changed=0",
		},
		{
			"purged before it ended", func([]checkpoint.Record) {}, saw(Seen{ID: "x", Sequence: 3, First: 2, Created: born.Add(1)}), 1,
			"lost=1 twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 contradicted=0 lines_changed=0",
		},
		{
			"another message than the record says", func([]checkpoint.Record) {}, saw(seen("g000000-a0-1", 1)), 1,
			"lost=0 twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 contradicted=1 lines_changed=0",
		},
		{
			"another version than the record says", func([]checkpoint.Record) {}, saw(Seen{ID: "g000003-a0-0", Sequence: 4, Created: born, Oldest: 1}), 1,
			"lost=0 twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 contradicted=1 lines_changed=0",
		},
		{
			"refused and trained on", func([]checkpoint.Record) {}, &Witness{Refused: []Refused{{Sequence: 4, Created: born}}}, 1,
			"lost=0 twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 contradicted=1 lines_changed=0",
		},
		{
			"a prompt twice", func(r []checkpoint.Record) { r[2].Groups[0].Group = "g000000-a1" }, nil, 1,
			"lost=0 twice=1 stale_over_bound=0 prompts_skipped=1 steps_missing=0 contradicted=0 lines_changed=0",
		},
		{
			"a baseline twice", func(r []checkpoint.Record) { baseline(r, 1, 7, 0); baseline(r, 2, 8, 1) }, nil, 1,
			"lost=0 twice=1 stale_over_bound=0 prompts_skipped=0 steps_missing=0 contradicted=0 lines_changed=0",
		},
		{
			"a stale baseline", func(r []checkpoint.Record) { r[2].Groups[0].Members[0].Oldest = 1; baseline(r, 2, 7, 0) }, nil, 0,
			"lost=0 twice=0 stale_over_bound=1 prompts_skipped=0 steps_missing=0 contradicted=0 lines_changed=0",
		},
		{
			"gap", func(r []checkpoint.Record) { r[2].Step = 3 }, nil, 7,
			"lost=0 twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=1 contradicted=0 lines_changed=0",
		},
		{
			"a line out of its place", func(r []checkpoint.Record) { r[1], r[2] = r[2], r[1]; r[1].NextCursor, r[2].Open = 4, r[1].Open }, nil, 7,
			"lost=0 twice=0 stale_over_bound=0 prompts_skipped=1 steps_missing=1 contradicted=0 lines_changed=1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			records := honest()
			c.spoil(records)
			r := Check(records, Bounds{Eta: c.eta}, c.witness)
			require.EqualError(t, r.Err(), "audit: "+c.want)
			named := len(r.Faults())
			for count := range strings.FieldsSeq(c.want) {
				n, err := strconv.Atoi(count[strings.Index(count, "=")+1:])
				require.NoError(t, err)
				named -= n
			}
			require.Zero(t, named, "each fault that is counted is named: %v", r.Faults())
		})
	}
}
