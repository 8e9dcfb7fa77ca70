package batch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// unequal keeps groups whose rewards differ.
func unequal(_ Group, rewards []float64) bool { return slices.Min(rewards) < slices.Max(rewards) }

func trajectory(cursor uint64, attempt, sample, size int, reward float64, versions ...int32) *schemas.Trajectory {
	s := schemas.Segment{
		Tokens: schemas.Int32s{1}, ActionMask: schemas.Bytes{0}, Logprobs: schemas.Float32s{0},
		Versions: schemas.Runs{schemas.NoVersion}, Temperature: 1,
	}
	for _, v := range versions {
		s.Tokens, s.ActionMask = append(s.Tokens, 2), append(s.ActionMask, 1)
		s.Logprobs, s.Versions = append(s.Logprobs, -1), append(s.Versions, v)
	}
	return &schemas.Trajectory{
		Run: "r", ID: TicketID(cursor, attempt, sample), Group: GroupID(cursor, attempt), Cursor: cursor, Attempt: attempt,
		Sample: sample, GroupSize: size, Segments: []schemas.Segment{s}, Reward: reward, Stop: schemas.StopAnswer,
	}
}

// greedy is the trajectory as a baseline.
func greedy(t *schemas.Trajectory) *schemas.Trajectory {
	t.Segments[0].Temperature = 0
	return t
}

func closed(cursor uint64, attempt int, samples ...int) *schemas.GroupClosed {
	return &schemas.GroupClosed{Run: "r", Group: GroupID(cursor, attempt), Cancelled: samples}
}

// scene feeds an assembler with rising sequences.
type scene struct {
	*Assembler
	seq uint64
}

func newScene(c Config, groups ...Group) *scene {
	c.Run = "r"
	s := &scene{Assembler: New(c, Start{})}
	for _, g := range groups {
		s.Open(g)
	}
	return s
}

func (s *scene) trajectory(t *schemas.Trajectory) Effects {
	s.seq++
	return s.Add(schemas.Delivery{Sequence: s.seq, Trajectory: t})
}

func (s *scene) marker(m *schemas.GroupClosed) Effects {
	s.seq++
	return s.Add(schemas.Delivery{Sequence: s.seq, Closed: m})
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	group := Group{Index: 0, Cursor: 0, Size: 2}
	config := Config{Groups: 1, MinGroup: 2, Eta: 1, Keep: unequal, Horizon: 4}
	foreignRun := trajectory(0, 0, 0, 2, 1, 0)
	foreignRun.Run = "another"
	wrongID := trajectory(0, 0, 0, 2, 1, 0)
	wrongID.ID = "g000000-a0-1"
	evaluated := trajectory(0, 0, 0, 2, 1, 0)
	evaluated.ID, evaluated.Group = "eval-validation-0-false-v1-0-0", "eval-validation-0-false-v1-0"
	failed := trajectory(0, 0, 0, 2, 1, 0)
	failed.Stop = schemas.StopError
	for _, c := range []struct {
		name   string
		before []*schemas.Trajectory
		in     *schemas.Trajectory
		want   schemas.Reason
	}{
		{"in order", nil, trajectory(0, 0, 0, 2, 1, 0), ""},
		{"duplicate", []*schemas.Trajectory{trajectory(0, 0, 0, 2, 1, 0)}, trajectory(0, 0, 0, 2, 1, 0), schemas.ReasonDuplicate},
		{"of another run", nil, foreignRun, schemas.ReasonForeign},
		{"of an evaluation", nil, evaluated, schemas.ReasonForeign},
		{"id of another sample", nil, wrongID, schemas.ReasonForeign},
		{"never issued", nil, trajectory(99, 0, 0, 2, 1, 0), schemas.ReasonForeign},
		{"soon to be issued", nil, trajectory(2, 0, 0, 2, 1, 0), ""},
		{"sample beyond the group", nil, trajectory(0, 0, 2, 3, 1, 0), schemas.ReasonForeign},
		{"ended by an error", nil, failed, schemas.ReasonPoisoned},
		{"nothing sampled", nil, trajectory(0, 0, 0, 2, 1), schemas.ReasonPoisoned},
		{"greedy", nil, greedy(trajectory(0, 0, 0, 2, 1, 0)), schemas.ReasonPoisoned},
		{"group ended", []*schemas.Trajectory{trajectory(0, 0, 0, 2, 1, 0), trajectory(0, 0, 1, 2, 1, 0)}, trajectory(0, 0, 0, 2, 1, 0), schemas.ReasonDuplicate},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(config, group)
			for _, b := range c.before {
				s.trajectory(b)
			}
			e := s.trajectory(c.in)
			if c.want == "" {
				require.Empty(t, e.Verdicts)
				return
			}
			require.Len(t, e.Verdicts, 1)
			require.Equal(t, Rejected, e.Verdicts[0].State)
			require.Equal(t, c.want, e.Verdicts[0].Reason, e.Verdicts[0].Detail)
		})
	}
}

func TestGroupsWithCancelledMembers(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 2, Eta: 0}, Group{Index: 0, Cursor: 0, Size: 4}, Group{Index: 1, Cursor: 1, Size: 4})
	s.marker(closed(0, 0, 1))
	s.trajectory(trajectory(0, 0, 0, 4, 1, 0))
	s.marker(closed(0, 0, 3))
	e := s.trajectory(trajectory(0, 0, 2, 4, 0, 0))
	require.Equal(t, []Group{{Index: 0, Cursor: 0, Size: 4}}, e.Ready)

	s.trajectory(trajectory(1, 0, 0, 4, 1, 0))
	e = s.marker(closed(1, 0, 1, 2, 3))
	require.Equal(t, []Drop{{Group: Group{Index: 1, Cursor: 1, Size: 4}, Reason: schemas.ReasonIncomplete, Reissue: true}}, e.Drops)
	require.Equal(t, schemas.ReasonIncomplete, e.Verdicts[0].Reason)

	b, err := s.Take()
	require.NoError(t, err)
	require.Equal(t, 2, b.Trajectories())
	require.Len(t, s.Commit().Verdicts, 4, "two trajectories and the group's two markers")
	require.Equal(t, Ledger{Low: 6}, s.Ledger())
}

func TestACancelledSampleThatComesAfterAllIsUsed(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 1, Eta: 0}, Group{Size: 2})
	s.marker(closed(0, 0, 0))
	s.trajectory(trajectory(0, 0, 0, 2, 1, 0))
	e := s.trajectory(trajectory(0, 0, 1, 2, 1, 0))
	require.Len(t, e.Ready, 1)
	b, err := s.Take()
	require.NoError(t, err)
	require.Equal(t, 2, b.Trajectories())
	require.Len(t, s.Commit().Verdicts, 2, "the marker ended when the sample came")
}

// Defect P7: each marker of an open group stayed pending until the group ended, so that a thousand of them stopped the feed.
func TestAMarkerThatSaysNothingNewEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 1, Horizon: 4}, Group{Size: 3})
	s.trajectory(trajectory(0, 0, 0, 3, 1, 0))
	require.Empty(t, s.marker(closed(0, 0, 0, 1)).Verdicts, "sample 1 is not awaited any more, which must be read again")
	for _, m := range []*schemas.GroupClosed{closed(0, 0), closed(0, 0, 0), closed(0, 0, 1), closed(0, 0, 7), closed(2, 0)} {
		e := s.marker(m)
		require.Equal(t, []Verdict{{Sequence: s.seq, State: Settled}}, e.Verdicts, "%v", m)
	}
	require.Len(t, s.trajectory(trajectory(0, 0, 2, 3, 1, 0)).Ready, 1)
}

func TestWhatComesBeforeItsGroupIsKeptOnceAndNotWithoutABound(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 1, Horizon: 4, MaxEarly: 2}, Group{Size: 1})
	require.Empty(t, s.trajectory(trajectory(1, 0, 0, 2, 1, 0)).Verdicts)
	require.Equal(t, schemas.ReasonDuplicate, s.trajectory(trajectory(1, 0, 0, 2, 1, 0)).Verdicts[0].Reason)
	require.Empty(t, s.marker(closed(2, 0, 0)).Verdicts)
	require.Equal(t, schemas.ReasonForeign, s.trajectory(trajectory(1, 0, 1, 2, 1, 0)).Verdicts[0].Reason)
	s.Open(Group{Index: 1, Cursor: 1, Size: 2})
	require.Empty(t, s.trajectory(trajectory(3, 0, 0, 1, 1, 0)).Verdicts, "there is room again")
	require.Len(t, s.trajectory(trajectory(1, 0, 1, 2, 1, 0)).Ready, 1, "what was kept is of its group")
}

func TestStalenessAtUse(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 2, MinGroup: 2, Eta: 1}, Group{Index: 0, Cursor: 0, Size: 3}, Group{Index: 1, Cursor: 1, Size: 2})
	s.trajectory(trajectory(0, 0, 0, 3, 1, 0, 1))
	s.trajectory(trajectory(0, 0, 1, 3, 1, 1, 1))
	require.Len(t, s.trajectory(trajectory(0, 0, 2, 3, 1, 1)).Drops, 1, "version 1 is not known at version 0")

	s = newScene(Config{Groups: 2, MinGroup: 2, Eta: 1}, Group{Index: 0, Cursor: 0, Size: 3}, Group{Index: 1, Cursor: 1, Size: 2})
	s.Advance(1)
	s.trajectory(trajectory(0, 0, 0, 3, 1, 0, 1))
	s.trajectory(trajectory(0, 0, 1, 3, 1, 1, 1))
	require.Len(t, s.trajectory(trajectory(0, 0, 2, 3, 1, 1)).Ready, 1)
	s.trajectory(trajectory(1, 0, 0, 2, 1, 0))
	require.Equal(t, []string(nil), s.Unfillable())

	e := s.Advance(2)
	require.Len(t, e.Verdicts, 1)
	require.Equal(t, TicketID(0, 0, 0), e.Verdicts[0].ID)
	require.Equal(t, schemas.ReasonStale, e.Verdicts[0].Reason)
	require.Empty(t, e.Drops, "two fresh samples are left of the first group")
	require.Equal(t, []string{GroupID(1, 0)}, s.Unfillable(), "one stale, one awaited: never two")

	e = s.Advance(3)
	require.Equal(t, []Drop{{Group: Group{Index: 0, Cursor: 0, Size: 3}, Reason: schemas.ReasonStale, Reissue: true, Accepted: true}}, e.Drops)
	e = s.trajectory(trajectory(0, 1, 0, 3, 1, 3))
	require.Empty(t, e.Verdicts, "the next attempt may come before it is issued anew")
	s.Open(Group{Index: 2, Cursor: 0, Attempt: 1, Size: 1})
	_, ready, early := s.Counts()
	require.Zero(t, early)
	require.Zero(t, ready, "a sample of three in a group of one is foreign")
}

func TestAGroupIsUsedWithItsBaselineOrNotAtAll(t *testing.T) {
	t.Parallel()
	group := Group{Size: 3, HasBaseline: true}
	config := Config{Groups: 1, MinGroup: 1, Eta: 1, Baseline: true, Keep: unequal}
	sample := func(s int) *schemas.Trajectory { return trajectory(0, 0, s, 3, float64(s), 0) }
	for _, c := range []struct {
		name   string
		group  Group
		config func(*Config)
		before []*schemas.Trajectory
		last   func(s *scene) Effects
		want   schemas.Reason // of the drop; "" if the group is ready
	}{
		{"whole", group, nil, []*schemas.Trajectory{sample(0), sample(1)}, func(s *scene) Effects {
			return s.trajectory(greedy(sample(2)))
		}, ""},
		{"cancelled", group, nil, []*schemas.Trajectory{sample(0), sample(1)}, func(s *scene) Effects {
			e := s.marker(closed(0, 0, 2))
			require.Empty(t, s.Unfillable(), "it is dropped, nothing is awaited")
			return e
		}, schemas.ReasonIncomplete},
		{"cancelled while a sample is awaited", group, nil, []*schemas.Trajectory{sample(0)}, func(s *scene) Effects {
			s.marker(closed(0, 0, 2))
			require.Equal(t, []string{GroupID(0, 0)}, s.Unfillable())
			return s.trajectory(sample(1))
		}, schemas.ReasonIncomplete},
		{"not greedy", group, nil, []*schemas.Trajectory{sample(0), sample(1)}, func(s *scene) Effects {
			e := s.trajectory(sample(2))
			require.Equal(t, schemas.ReasonPoisoned, e.Verdicts[0].Reason)
			return e
		}, schemas.ReasonIncomplete},
		{"stale", group, nil, []*schemas.Trajectory{greedy(sample(2))}, func(s *scene) Effects {
			s.Advance(2)
			require.Equal(t, []string{GroupID(0, 0)}, s.Unfillable())
			s.trajectory(trajectory(0, 0, 0, 3, 0, 2))
			return s.trajectory(trajectory(0, 0, 1, 3, 1, 2))
		}, schemas.ReasonStale},
		{"stale once it was ready", group, nil, []*schemas.Trajectory{greedy(sample(2)), trajectory(0, 0, 0, 3, 0, 1), trajectory(0, 0, 1, 3, 1, 1)}, func(s *scene) Effects {
			return s.Advance(2)
		}, schemas.ReasonStale},
		{"too few samples beside it", group, func(c *Config) { c.MinGroup = 2 }, []*schemas.Trajectory{sample(0), greedy(sample(2))}, func(s *scene) Effects {
			require.Empty(t, s.Unfillable())
			return s.marker(closed(0, 0, 1))
		}, schemas.ReasonIncomplete},
		{"samples equal, baseline not", group, nil, []*schemas.Trajectory{sample(0), greedy(sample(2))}, func(s *scene) Effects {
			return s.trajectory(trajectory(0, 0, 1, 3, 0, 0))
		}, schemas.ReasonZeroVariance},
		{"issued before the run needed one", Group{Size: 2}, nil, []*schemas.Trajectory{trajectory(0, 0, 0, 2, 0, 0)}, func(s *scene) Effects {
			return s.trajectory(trajectory(0, 0, 1, 2, 1, 0))
		}, schemas.ReasonIncomplete},
		{"no longer needed", group, func(c *Config) { c.Baseline = false }, []*schemas.Trajectory{sample(0), sample(1)}, func(s *scene) Effects {
			return s.marker(closed(0, 0, 2))
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := config
			if c.config != nil {
				c.config(&config)
			}
			s := newScene(config, c.group)
			if c.name == "stale once it was ready" {
				s.Advance(1)
			}
			for _, b := range c.before {
				s.trajectory(b)
			}
			e := c.last(s)
			if c.want == "" {
				require.Equal(t, []Group{c.group}, e.Ready)
				return
			}
			require.Len(t, e.Drops, 1)
			require.Equal(t, c.want, e.Drops[0].Reason)
			require.Equal(t, c.want != schemas.ReasonZeroVariance, e.Drops[0].Reissue)
			low := s.Ledger().Low
			require.Equal(t, s.seq, low, "every message has ended, the baseline's too")
		})
	}
}

func TestABaselineIsUsedUpAndNotTrainedOn(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 1, Baseline: true}, Group{Size: 2, HasBaseline: true})
	base := greedy(trajectory(0, 0, 1, 2, 0.25, 0))
	base.Turns = []schemas.Turn{{Start: 1, End: 2, ProcessReward: 0.5}}
	s.trajectory(base)
	s.trajectory(trajectory(0, 0, 0, 2, 1, 0, 0))
	b, err := s.Take()
	require.NoError(t, err)
	require.Equal(t, 1, b.Trajectories())
	require.Len(t, b.Deliveries(), 2)
	rows := NewRows(b)
	require.Equal(t, 1, rows.Len())
	require.Equal(t, []float64{0.75}, rows.Baselines)
	require.Equal(t, []Verdict{
		{Sequence: 2, ID: TicketID(0, 0, 0), State: Trained}, {Sequence: 1, ID: TicketID(0, 0, 1), State: Trained},
	}, s.Commit().Verdicts)
	require.Equal(t, Ledger{Low: 2}, s.Ledger())
}

func TestABatchIsShortWhenTooManyGroupsWereDropped(t *testing.T) {
	t.Parallel()
	var groups []Group
	for g := range uint64(8) {
		groups = append(groups, Group{Index: g, Cursor: g, Size: 2})
	}
	s := newScene(Config{Groups: 3, MinGroup: 2, Keep: unequal, MaxFlat: 3}, groups...)
	add := func(cursor uint64, rewards ...float64) Effects {
		s.trajectory(trajectory(cursor, 0, 0, 2, rewards[0], 0))
		return s.trajectory(trajectory(cursor, 0, 1, 2, rewards[1], 0))
	}
	for g := range uint64(3) {
		require.Len(t, add(g, 1, 1).Drops, 1)
		b, err := s.Take()
		require.NoError(t, err)
		require.Nil(t, b, "a batch has one group at least")
	}
	require.Equal(t, 3, s.Flat())
	require.Len(t, add(3, 0, 1).Ready, 1)
	b, err := s.Take()
	require.NoError(t, err)
	require.Len(t, b.Groups, 1)
	require.Zero(t, s.Flat(), "the next batch begins anew")
}

func TestZeroVarianceCountsProcessRewards(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 2, Keep: unequal}, Group{Size: 2}, Group{Index: 1, Cursor: 1, Size: 2})
	a, b := trajectory(0, 0, 0, 2, 1, 0), trajectory(0, 0, 1, 2, 1, 0)
	s.trajectory(a)
	e := s.trajectory(b)
	require.Equal(t, schemas.ReasonZeroVariance, e.Drops[0].Reason)
	require.False(t, e.Drops[0].Reissue, "another prompt takes its place")
	require.Len(t, e.Verdicts, 2)

	a, b = trajectory(1, 0, 0, 2, 1, 0), trajectory(1, 0, 1, 2, 1, 0)
	b.Turns = []schemas.Turn{{Start: 1, End: 2, ProcessReward: 0.5}}
	s.trajectory(a)
	require.Len(t, s.trajectory(b).Ready, 1)
}

func TestGroupIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "g000012-a3-7", TicketID(12, 3, 7))
	rapid.Check(t, func(t *rapid.T) {
		c, a := rapid.Uint64().Draw(t, "cursor"), rapid.IntRange(0, 1<<30).Draw(t, "attempt")
		cursor, attempt, ok := ParseGroupID(GroupID(c, a))
		require.True(t, ok)
		require.Equal(t, c, cursor)
		require.Equal(t, a, attempt)
		_, _, ok = ParseGroupID(rapid.String().Draw(t, "junk"))
		require.False(t, ok)
		s := rapid.IntRange(0, 1<<30).Draw(t, "sample")
		cursor, attempt, sample, ok := ParseTicketID(TicketID(c, a, s))
		require.True(t, ok)
		require.Equal(t, []any{c, a, s}, []any{cursor, attempt, sample})
	})
	for _, bad := range []string{"", "g1-a0", "g000001", "g000001-a-1", "g000001-a01", "x000001-a0", fmt.Sprintf("g%s-a0", "99999999999999999999999")} {
		_, _, ok := ParseGroupID(bad)
		require.False(t, ok, bad)
		_, _, _, ok = ParseTicketID(bad + "-1")
		require.False(t, ok, bad)
	}
	for _, bad := range []string{"", "g000001-a1", "g000001-a1-", "g000001-a1--1", "g000001-a1-01", "g000001-a1-+1"} {
		_, _, _, ok := ParseTicketID(bad)
		require.False(t, ok, bad)
	}
}

func TestALedgerThatIsReadAgainKeepsWhatMayStillCome(t *testing.T) {
	t.Parallel()
	a := New(Config{Run: "r", Groups: 1, MinGroup: 2}, Start{NextCursor: 1, Ledger: Ledger{Low: 3, Above: []uint64{6, 8}}})
	a.Open(Group{Size: 2})
	require.Equal(t, Ledger{Low: 3, Above: []uint64{6, 8}}, a.Ledger(), "4, 5 and 7 are yet to be delivered")
	a.Add(schemas.Delivery{Sequence: 4, Trajectory: trajectory(0, 0, 0, 3, 1, 0)})
	require.Equal(t, Ledger{Low: 4, Above: []uint64{6, 8}}, a.Ledger())
	a.Add(schemas.Delivery{Sequence: 5, Trajectory: trajectory(0, 0, 0, 2, 1, 0)})
	a.Add(schemas.Delivery{Sequence: 6, Trajectory: trajectory(0, 0, 0, 2, 1, 0)})
	require.Equal(t, Ledger{Low: 4, Above: []uint64{6, 8}}, a.Ledger(), "5 is pending")
}

// What the feed refused itself is never given to the Assembler, and would hold the low-water mark down for ever.
func TestTheLedgerPassesWhatTheFeedRefused(t *testing.T) {
	t.Parallel()
	a := New(Config{Run: "r", Groups: 1, MinGroup: 2}, Start{NextCursor: 1})
	a.Open(Group{Size: 2})
	a.Pass(7)
	require.Equal(t, Ledger{Low: 7}, a.Ledger())
	a.Add(schemas.Delivery{Sequence: 9, Trajectory: trajectory(0, 0, 0, 2, 1, 0)})
	a.Pass(11)
	require.Equal(t, Ledger{Low: 8}, a.Ledger(), "9 is pending")
	a.Pass(3)
	a.Add(schemas.Delivery{Sequence: 10, Trajectory: trajectory(0, 0, 1, 2, 1, 0)})
	_, err := a.Take()
	require.NoError(t, err)
	a.Commit()
	require.Equal(t, Ledger{Low: 11}, a.Ledger())
}

// A message that has ended is given again where another stands between the low-water mark and it: all below it was given too.
func TestTheLedgerCountsAMessageThatIsGivenAgain(t *testing.T) {
	t.Parallel()
	a := New(Config{Run: "r", Groups: 1, MinGroup: 2}, Start{NextCursor: 1, Ledger: Ledger{Low: 3, Above: []uint64{6}}})
	require.Equal(t, []Verdict{{Sequence: 6, State: Settled}}, a.Add(schemas.Delivery{Sequence: 6, Closed: closed(0, 0, 1)}).Verdicts)
	require.Equal(t, Ledger{Low: 6}, a.Ledger())
}

func TestNothingIsKeptForAPromptThatIsNotIssuedAgain(t *testing.T) {
	t.Parallel()
	for forget, want := range map[bool]int{false: 0, true: 1} {
		s := &scene{Assembler: New(Config{Run: "r", Groups: 1, MinGroup: 1, Horizon: 4}, Start{NextCursor: 3})}
		s.Await(2, 0)
		if forget {
			s.Forget(2)
		}
		require.Len(t, s.trajectory(trajectory(2, 1, 0, 2, 1, 0)).Verdicts, want)
	}
}

func TestCarriedMessagesAreGivenBackAndNotReadAgain(t *testing.T) {
	t.Parallel()
	config := Config{Run: "r", Groups: 1, MinGroup: 2}
	a := New(config, Start{})
	a.Open(Group{Size: 4})
	poisoned := trajectory(0, 0, 3, 4, 1, 0)
	poisoned.Stop = schemas.StopError
	a.Add(schemas.Delivery{Sequence: 1, Trajectory: trajectory(0, 0, 0, 4, 1, 0)})
	a.Add(schemas.Delivery{Sequence: 2, Closed: closed(0, 0, 1)})
	a.Add(schemas.Delivery{Sequence: 3, Trajectory: poisoned})
	require.Empty(t, a.Carried())
	carried := a.Carry()
	require.Len(t, carried, 2)
	ledger := a.Ledger()
	require.Equal(t, Ledger{Low: 3, Carried: []uint64{1, 2}}, ledger)
	refused := a.Refused()
	require.Equal(t, []Refused{{Group: GroupID(0, 0), Samples: []int{3}}}, refused)

	b := New(config, Start{NextCursor: 1, Ledger: ledger})
	b.Open(Group{Size: 4})
	b.Refuse(refused)
	for _, d := range carried {
		require.Empty(t, b.Add(d).Verdicts)
	}
	require.Len(t, b.Add(schemas.Delivery{Sequence: 4, Trajectory: trajectory(0, 0, 2, 4, 1, 0)}).Ready, 1)
	taken, err := b.Take()
	require.NoError(t, err)
	require.Equal(t, 2, taken.Trajectories())
	b.Commit()
	require.Equal(t, Ledger{Low: 4}, b.Ledger())
	require.Equal(t, Settled, b.Add(carried[0]).Verdicts[0].State)
}

// A restart dropped a group that was ready: a marker was read again before the sample that came in spite of it, and another
// sample was refused.
func TestARestartDropsNoGroupForAMarkerThatItsSampleOverruled(t *testing.T) {
	t.Parallel()
	for _, carry := range []bool{true, false} {
		config := Config{Run: "r", Groups: 2, MinGroup: 2}
		a := New(config, Start{})
		a.Open(Group{Size: 4})
		stream := []schemas.Delivery{
			{Sequence: 1, Closed: closed(0, 0, 2, 3)},
			{Sequence: 2, Trajectory: trajectory(0, 0, 0, 4, 1, 0)},
			{Sequence: 3, Trajectory: trajectory(0, 0, 1, 4, 1, 9)},
			{Sequence: 4, Trajectory: trajectory(0, 0, 2, 4, 1, 0)},
		}
		stream[2].Trajectory.Stop = schemas.StopError
		a.Add(stream[0])
		a.Add(stream[2])
		a.Add(stream[3])
		require.Len(t, a.Add(stream[1]).Ready, 1)
		if carry {
			stream = a.Carry()
		}
		b := New(config, Start{NextCursor: 1, Ledger: a.Ledger()})
		b.Open(Group{Size: 4})
		b.Refuse(a.Refused())
		for _, d := range stream {
			require.Empty(t, b.Add(d).Drops)
		}
		_, ready, _ := b.Counts()
		require.Equal(t, 1, ready)
	}
}
