package trainer

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// turnsRollout is a rollout of one to four turns of two tokens, between them what a tool says. It depends on the ticket and the weights alone, and
// begins with the turns of a ticket's fork.
func turnsRollout(table []float32, vocab int, t *schemas.Ticket, version int64) *schemas.Trajectory {
	rng := rand.New(rand.NewPCG(t.Seed, 7))
	tr := enginetest.BigramRollout(table, vocab, t, version)
	s := &tr.Segments[0]
	s.Tokens, s.ActionMask, s.Logprobs, s.Versions = s.Tokens[:2], s.ActionMask[:2], s.Logprobs[:2], s.Versions[:2]
	turns := 1 + rng.IntN(4)
	if t.Fork != nil {
		*s, tr.Turns = t.Fork.Segments[0], slices.Clone(t.Fork.Turns)
		s.Tokens, s.ActionMask, s.Logprobs, s.Versions = slices.Clone(s.Tokens), slices.Clone(s.ActionMask), slices.Clone(s.Logprobs), slices.Clone(s.Versions)
		tr.Forked = &schemas.Forked{Parent: t.Fork.Parent, Turns: len(t.Fork.Turns)}
		turns = min(4, len(tr.Turns)+1+rng.IntN(2))
	}
	call := []schemas.ToolCall{{Tool: "look"}}
	for i := range tr.Turns {
		tr.Turns[i].Calls = call
	}
	for len(tr.Turns) < turns {
		if len(tr.Turns) > 0 {
			tr.Turns[len(tr.Turns)-1].Calls = call
			s.Tokens, s.ActionMask = append(s.Tokens, (2*s.Tokens[len(s.Tokens)-1]+1)%int32(vocab)), append(s.ActionMask, 0)
			s.Logprobs, s.Versions = append(s.Logprobs, 0), append(s.Versions, schemas.NoVersion)
		}
		turn := schemas.Turn{Start: len(s.Tokens)}
		for range 2 {
			lp := enginetest.BigramLogprobs(table, vocab, s.Tokens[len(s.Tokens)-1])
			u, next := rng.Float64(), int32(vocab-1)
			if t.Sampling.Temperature == 0 {
				next, u = int32(slices.Index(lp, slices.Max(lp))), math.Inf(1)
			}
			for v, l := range lp {
				if u -= math.Exp(l); u < 0 {
					next = int32(v)
					break
				}
			}
			s.Tokens, s.ActionMask = append(s.Tokens, next), append(s.ActionMask, 1)
			s.Logprobs, s.Versions = append(s.Logprobs, float32(lp[next])), append(s.Versions, int32(version))
		}
		turn.End = len(s.Tokens)
		tr.Turns = append(tr.Turns, turn)
	}
	tr.Reward = 0
	for i, on := range s.ActionMask {
		if on == 1 && s.Tokens[i] == (s.Tokens[i-1]+1)%int32(vocab) {
			tr.Reward++
		}
	}
	tr.Rewards["next"] = tr.Reward
	return tr
}

// branching is a run whose groups branch.
func branching(dir string) (Config, *world) {
	cfg := testConfig(dir)
	cfg.GroupSize, cfg.Branch.Trunks, cfg.Branch.Threshold = 5, 2, 0.2
	w := newWorld(vocab)
	w.turns = true
	return cfg, w
}

// noting is a world that notes every ticket that it is told of, and what it had stored then.
type noting struct {
	*world
	tickets map[string]*schemas.Ticket
	stored  map[string]int
}

func (i *noting) Issue(ctx context.Context, tickets ...*schemas.Ticket) error {
	for _, t := range tickets {
		if i.tickets[t.ID] == nil {
			i.tickets[t.ID], i.stored[t.ID] = t, len(i.messages)
		}
	}
	return i.world.Issue(ctx, tickets...)
}

// forks holds every ticket against the trunks of its group: what waits was issued when all trunks had come, and takes over a trunk's own
// beginning. It returns how many are forks.
func (i *noting) forks(t *testing.T, cfg Config) (n int) {
	t.Helper()
	for id, ticket := range i.tickets {
		if ticket.Sample < cfg.Branch.Trunks || ticket.Sample >= cfg.GroupSize {
			require.Nil(t, ticket.Fork, id)
			continue
		}
		for s := range cfg.Branch.Trunks {
			require.Contains(t, i.tickets, batch.TicketID(ticket.Cursor, ticket.Attempt, s))
		}
		if ticket.Fork == nil {
			continue
		}
		n++
		at := slices.IndexFunc(i.messages, func(d schemas.Delivery) bool { return d.Trajectory != nil && d.Trajectory.ID == ticket.Fork.Parent })
		require.GreaterOrEqual(t, at, 0)
		require.Less(t, at, i.stored[id], "the trunk had come")
		trunk := i.messages[at].Trajectory
		require.Equal(t, ticket.Group, trunk.Group)
		require.Less(t, trunk.Sample, cfg.Branch.Trunks)
		require.Equal(t, i.tickets[trunk.ID].Seed, ticket.Fork.Seed)
		end := ticket.Fork.Turns[len(ticket.Fork.Turns)-1].End
		require.Equal(t, trunk.Segments[0].Tokens[:end], ticket.Fork.Segments[0].Tokens)
		require.Equal(t, trunk.Segments[0].Logprobs[:end], ticket.Fork.Segments[0].Logprobs)
		require.Equal(t, trunk.Segments[0].Versions[:end], ticket.Fork.Segments[0].Versions)
		require.NotEqual(t, ticket.Fork.Seed, ticket.Seed, "it samples by itself")
		require.NoError(t, ticket.Validate())
	}
	return n
}

// trainIssuing is one run without a crash.
func trainIssuing(t *testing.T, cfg Config, w *world) *noting {
	t.Helper()
	noted := &noting{world: w, tickets: map[string]*schemas.Ticket{}, stored: map[string]int{}}
	require.NoError(t, Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: noted, Prompts: prompts{vocab}}))
	return noted
}

// Samples wait for their group's trunks and go on from them, in every setting; the account of a run is as of any other.
func TestForksAreIssuedWhenTheirTrunksHaveCome(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config, *world){
		"synchronous":       func(c *Config, _ *world) { c.Deterministic = true },
		"asynchronous":      func(c *Config, w *world) { c.Eta, c.Depth, w.lag = 2, 2, 2 },
		"noise":             func(_ *Config, w *world) { w.noise = true },
		"with a baseline":   func(c *Config, _ *world) { c.Advantage.Name = "remax" },
		"in another order":  func(_ *Config, w *world) { w.shuffle = rand.New(rand.NewPCG(1, 2)) },
		"rows are gathered": func(c *Config, _ *world) { c.Selection.Accumulate.Rows, c.Selection.Accumulate.MaxRounds = 30, 9 },
		"newest first":      func(_ *Config, w *world) { w.backwards = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, w := branching(t.TempDir())
			change(&cfg, w)
			noted := trainIssuing(t, cfg, w)
			n := noted.forks(t, cfg)
			require.Greater(t, n, len(noted.tickets)/10, "forks among %d tickets", len(noted.tickets))
			forked := 0
			for _, r := range audit(t, cfg, w) {
				for _, g := range r.Groups {
					for _, m := range g.Members {
						if w.messages[m.Sequence-1].Trajectory.Forked != nil {
							forked++
						}
					}
				}
			}
			require.Positive(t, forked, "and are trained on")
		})
	}
}

// A trunk that is refused, closed or lost is not forked; what waited for it is issued all the same.
func TestATrunkThatDoesNotComeIsNotForked(t *testing.T) {
	t.Parallel()
	trunk := func(t *schemas.Ticket) bool { return t.Sample < 2 && t.Cursor%2 == 0 }
	for name, spoil := range map[string]func(w *world){
		"lost":   func(w *world) { w.steal, w.idle = trunk, true },
		"leased": func(w *world) { w.hoard, w.idle = trunk, true },
		"refused": func(w *world) {
			w.change = func(_ uint64, tr *schemas.Trajectory) {
				if tr.Sample < 2 && tr.Cursor%2 == 0 {
					tr.Segments[0].Tokens[2] = vocab
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, w := branching(t.TempDir())
			cfg.GroupTimeout, cfg.Limits.Timeout = 1, 1
			spoil(w)
			noted := trainIssuing(t, cfg, w)
			require.Positive(t, noted.forks(t, cfg))
			waited := map[bool]int{}
			for _, ticket := range noted.tickets {
				if ticket.Sample >= 2 {
					require.False(t, ticket.Cursor%2 == 0 && ticket.Fork != nil, "%s forks what did not come", ticket.ID)
					waited[ticket.Cursor%2 == 0]++
				}
			}
			require.Positive(t, waited[true])
			for _, r := range audit(t, cfg, w) {
				for _, g := range r.Groups {
					if cursor, _, _ := batch.ParseGroupID(g.Group); cursor%2 == 0 {
						require.Len(t, g.Members, 3, "the samples that waited are trained on")
					}
				}
			}
		})
	}
}

// A trajectory that says that it forks what its group has no trunk of is refused.
func TestAForkOfAnotherGroupIsRefused(t *testing.T) {
	t.Parallel()
	cfg, w := branching(t.TempDir())
	w.change = func(_ uint64, tr *schemas.Trajectory) {
		switch {
		case tr.Cursor == 1 && tr.Sample == 0:
			tr.Forked = &schemas.Forked{Parent: batch.TicketID(1, 0, 1), Turns: 1}
		case tr.Cursor == 1 && tr.Sample == 2:
			tr.Forked = &schemas.Forked{Parent: batch.TicketID(0, 0, 1), Turns: 1}
		case tr.Cursor == 1 && tr.Sample == 3:
			tr.Forked = &schemas.Forked{Parent: batch.TicketID(1, 0, 4), Turns: 1}
		}
	}
	train(t, cfg, w)
	refused := map[string]schemas.Reason{}
	for _, r := range audit(t, cfg, w) {
		for _, x := range r.Rejected {
			refused[x.ID] = x.Reason
		}
	}
	for _, s := range []int{0, 2, 3} {
		require.Equal(t, schemas.ReasonForeign, refused[batch.TicketID(1, 0, s)], "sample %d", s)
	}
}

// Killed between a trunk and its forks, before and after the forks are issued, while they are out: nothing is issued otherwise than before,
// nothing is lost or used twice. Without staleness the weights are those of the run that was never killed.
func TestKilledBetweenTrunksAndForks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			prepare := func() (Config, *world) {
				cfg, w := branching(t.TempDir())
				cfg.Eta, cfg.Depth, cfg.Deterministic = int(seed%3), int(seed%3), seed%3 == 0
				cfg.Checkpoint.Messages = 10 * int(1+seed%5)
				w.noise, w.lag = true, int64(cfg.Eta)
				return cfg, w
			}
			cfg, w := prepare()
			want := train(t, cfg, w)
			cfg, w = prepare()
			rng := rand.New(rand.NewPCG(seed, 3))
			killed := 0
			w.crash = func(string) error {
				if rng.IntN(100) == 0 {
					killed++
					return errCrash
				}
				return nil
			}
			got := train(t, cfg, w)
			require.Greater(t, killed, 1)
			audit(t, cfg, w)
			if cfg.Deterministic {
				require.Equal(t, want, got)
			}
		})
	}
}

// Over a real broker too, stopped and started again.
func TestOverJetStreamGroupsBranch(t *testing.T) {
	t.Parallel()
	for _, stops := range [][]int64{nil, {1, 3, 4}} {
		run := streamtest.Open(t, streamtest.Conn(t))
		cfg, _ := branching(t.TempDir())
		cfg.Deterministic = true
		producing, stop := context.WithCancel(t.Context())
		var group errgroup.Group
		for p := range 2 {
			group.Go(func() error { return produceTurns(producing, run, fmt.Sprint("p", p), 0) })
		}
		trainOver(t, cfg, run, stops...)
		stop()
		require.ErrorIs(t, group.Wait(), context.Canceled)
		records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
		require.NoError(t, err)
		require.Len(t, records, int(cfg.Steps)+1)
		require.NoError(t, auditing.Check(records, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil).Err())
		b, err := checkpoint.ReadBatch(cfg.Checkpoint.Dir, &records[len(records)-1])
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(b, func(d schemas.Delivery) bool { return d.Trajectory.Forked != nil }))
	}
}
