package learner

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/internal/perturb"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
)

// drawEpisode draws a trajectory in which some of three agents act by turns, each segment with a turn for each run of sampled
// tokens; apart says whether it may bring rewards of single agents.
func drawEpisode(t *rapid.T, apart bool) *schemas.Trajectory {
	number := rapid.Float64Range(-2, 2)
	out := &schemas.Trajectory{Reward: number.Draw(t, "reward"), Stop: schemas.StopAnswer}
	if rapid.Bool().Draw(t, "cut off") {
		out.Stop = schemas.StopTimeout
	}
	acted := map[string]bool{}
	for i := range rapid.IntRange(1, 5).Draw(t, "segments") {
		s := schemas.Segment{Temperature: 1, Agent: rapid.SampledFrom([]string{"", "proposer", "solver"}).Draw(t, "agent")}
		mask := append([]uint8{0}, rapid.SliceOfN(rapid.SampledFrom([]uint8{0, 1}), 0, 6).Draw(t, "mask")...)
		if i == 0 {
			mask = append(mask, 1, 1) // every trajectory acts
		}
		for j, m := range mask {
			s.Tokens, s.ActionMask = append(s.Tokens, rapid.Int32Range(0, vocab-1).Draw(t, "token")), append(s.ActionMask, m)
			s.Logprobs, s.Versions = append(s.Logprobs, -float32(m)), append(s.Versions, int32(m)-1)
			if m == 1 && (j+1 == len(mask) || mask[j+1] == 0) {
				start := j
				for start > 0 && mask[start-1] == 1 {
					start--
				}
				out.Turns = append(out.Turns, schemas.Turn{Segment: i, Start: start, End: j + 1, Reward: number.Draw(t, "turn")})
				out.Values = append(out.Values, schemas.StateValue{Mean: number.Draw(t, "value"), Samples: 1})
				acted[s.Agent] = true
			}
		}
		out.Segments = append(out.Segments, s)
	}
	for _, agent := range slices.Sorted(maps.Keys(acted)) {
		if apart && rapid.IntRange(0, 3).Draw(t, "has a reward of its own") > 0 {
			if out.AgentRewards == nil {
				out.AgentRewards = map[string]float64{}
			}
			out.AgentRewards[agent] = number.Draw(t, "agent's reward")
		}
	}
	return out
}

func memberOf(t *schemas.Trajectory, shaping float64) batch.Member {
	m := batch.Member{Trajectory: t, Reward: t.Reward + shaping, Shaping: shaping}
	m.Return = m.Reward
	for _, turn := range t.Turns {
		m.Return += turn.Credit()
	}
	return m
}

// drawBatchOfAgents draws a batch of groups that are credited by agent, and groups that are not.
func drawBatchOfAgents(t *rapid.T) *batch.Batch {
	b := &batch.Batch{}
	shaping := rapid.SampledFrom([]float64{0, -0.5})
	for range rapid.IntRange(1, 3).Draw(t, "groups") {
		var g batch.Taken
		apart := rapid.IntRange(0, 2).Draw(t, "by agent") > 0
		for range rapid.IntRange(2, 4).Draw(t, "trajectories") {
			g.Members = append(g.Members, memberOf(drawEpisode(t, apart), shaping.Draw(t, "shaping")))
		}
		if len(g.Members) > 2 && rapid.IntRange(0, 3).Draw(t, "passes one over") == 0 {
			g.Members[0].PassedOver = true
		}
		g.Baseline = new(memberOf(drawEpisode(t, apart), shaping.Draw(t, "shaping")))
		b.Groups = append(b.Groups, g)
	}
	return b
}

// alone is what an agent did in a trajectory as a trajectory of its own, with its reward as the only one, and which segments of the
// whole its segments are. An agent "*" is all of them.
func alone(m batch.Member, agent string) (own batch.Member, segments []int) {
	whole := m.Trajectory
	part := &schemas.Trajectory{Stop: whole.Stop, Reward: whole.Reward}
	if reward, named := whole.AgentRewards[agent]; named {
		part.Reward = reward
	}
	at := map[int]int{}
	for i, s := range whole.Segments {
		if agent == "*" || s.Agent == agent {
			at[i] = len(part.Segments)
			s.Agent = ""
			part.Segments, segments = append(part.Segments, s), append(segments, i)
		}
	}
	for i, turn := range whole.Turns {
		if to, ours := at[turn.Segment]; ours {
			turn.Segment = to
			part.Turns, part.Values = append(part.Turns, turn), append(part.Values, whole.Values[i])
		}
	}
	return memberOf(part, m.Shaping), segments
}

func acts(s schemas.Segment) bool { return slices.Contains(s.ActionMask, 1) }

// place is a segment of a trajectory of a batch.
type place struct{ group, member, segment int }

// apartOf is a batch in which each agent's parts are a group of their own, and for each of its rows the segment that it is.
func apartOf(b *batch.Batch) (out *batch.Batch, rows []place) {
	out = &batch.Batch{}
	for g, group := range b.Groups {
		split := slices.ContainsFunc(group.Members, func(m batch.Member) bool {
			return !m.PassedOver && len(m.Trajectory.AgentRewards) > 0
		})
		agents := []string{"*"}
		if split {
			agents = nil
			for _, m := range group.Members {
				for _, s := range m.Trajectory.Segments {
					if acts(s) && !m.PassedOver && !slices.Contains(agents, s.Agent) {
						agents = append(agents, s.Agent)
					}
				}
			}
		}
		for _, agent := range agents {
			var own batch.Taken
			for k, m := range group.Members {
				part, segments := alone(m, agent)
				if m.PassedOver || !slices.ContainsFunc(part.Trajectory.Segments, acts) {
					continue
				}
				for i, s := range part.Trajectory.Segments {
					if acts(s) {
						rows = append(rows, place{g, k, segments[i]})
					}
				}
				own.Members = append(own.Members, part)
			}
			own.Baseline = group.Baseline
			if part, _ := alone(*group.Baseline, agent); slices.ContainsFunc(part.Trajectory.Segments, acts) {
				own.Baseline = &part
			}
			out.Groups = append(out.Groups, own)
		}
	}
	return out, rows
}

// places are the segments that the rows of a batch are.
func places(b *batch.Batch) (rows []place) {
	for g, group := range b.Groups {
		for k, m := range group.Members {
			for i, s := range m.Trajectory.Segments {
				if acts(s) && !m.PassedOver {
					rows = append(rows, place{g, k, i})
				}
			}
		}
	}
	return rows
}

// credited is a step up to its advantages.
func credited(t require.TestingT, cfg Config, b *batch.Batch) *step {
	l, err := New(cfg, Deps{Engine: enginetest.BigramOf(gpu.Config{VocabSize: vocab, ValueHead: true})})
	require.NoError(t, err)
	e := l.deps.Engine.(*enginetest.Bigram)
	for i := range e.Values {
		e.Values[i] = float32(i) / 4
	}
	s := l.beginStep(b)
	require.NoError(t, s.evaluateBatch(context.Background()))
	require.NoError(t, s.assignCredit(context.Background()))
	return s
}

// Invariant: an agent's part of a trajectory is credited as if it had been a trajectory of its own, with the agent's reward, in a
// group of the same agent's parts alone: by every estimator.
func TestAnAgentIsCreditedAsIfItsPartWereATrajectoryOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, name := range advantage.Names() {
		if name == "rae" { // keeps a mean for each agent: see below
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				cfg := testConfig()
				cfg.Advantage.Name, cfg.Advantage.Own = name, advantage.Keys(name)
				perturb.Overlay(cfg.Advantage.Own, struct {
					Whiten           bool
					Single           string
					StepGamma, Gamma float64
				}{
					rapid.Bool().Draw(t, "whiten"),
					rapid.SampledFrom([]string{advantage.SingleZero, advantage.SingleReward}).Draw(t, "single"), 0.9, 0.8,
				}, true)
				cfg.Advantage.NormalizeProcess = name != "remax" && rapid.Bool().Draw(t, "normalize process")
				cfg.Advantage.Normalize.Mean = rapid.SampledFrom([]string{"none", "group"}).Draw(t, "normalize")
				if cfg.needsValues() {
					cfg.Critic.Network = CriticHead
				}
				require.NoError(t, cfg.Validate())
				b := drawBatchOfAgents(t)
				together := credited(t, cfg, b)
				least := advantage.FactsOf(name, nil).LeastGroup
				apart, rows := apartOf(b)
				want := map[place][]float64{}
				row := 0
				var few []place // of groups of fewer than the estimator takes, which get nothing
				kept, keptRows := &batch.Batch{}, []place(nil)
				for _, g := range apart.Groups {
					n := 0
					for _, m := range g.Members {
						for _, s := range m.Trajectory.Segments {
							if acts(s) {
								n++
							}
						}
					}
					if len(g.Members) < least {
						few = append(few, rows[row:row+n]...)
					} else {
						kept.Groups, keptRows = append(kept.Groups, g), append(keptRows, rows[row:row+n]...)
					}
					row += n
				}
				if len(kept.Groups) > 0 {
					s := credited(t, cfg, kept)
					for i, p := range keptRows {
						want[p] = s.result.Advantages[s.rows.Offsets[i]:s.rows.Offsets[i+1]]
					}
				}
				for i, p := range places(b) {
					got := together.result.Advantages[together.rows.Offsets[i]:together.rows.Offsets[i+1]]
					if slices.Contains(few, p) {
						require.Equal(t, make([]float64, len(got)), got, "%v has too few to be compared with", p)
						continue
					}
					require.InDeltaSlice(t, want[p], got, 1e-9, "%v", p)
				}
			})
		})
	}
}

// The formulas, from the trajectories themselves, agent by agent.
func TestAdvantagesByAgentAgainstTheirFormulas(t *testing.T) {
	t.Parallel()
	type part struct {
		at     []place
		reward float64
	}
	mean := func(x []float64) float64 {
		sum := 0.0
		for _, v := range x {
			sum += v
		}
		return sum / float64(len(x))
	}
	formulas := map[string]func(r float64, all []float64) float64{
		"grpo": func(r float64, all []float64) float64 {
			if len(all) == 1 {
				return 0
			}
			squares := 0.0
			for _, v := range all {
				squares += (v - mean(all)) * (v - mean(all))
			}
			return (r - mean(all)) / (math.Sqrt(squares/float64(len(all)-1)) + 0.2)
		},
		"dr_grpo":           func(r float64, all []float64) float64 { return r - mean(all) },
		"hierarchical_grpo": func(r float64, all []float64) float64 { return r - mean(all) },
		"rloo": func(r float64, all []float64) float64 {
			if len(all) == 1 {
				return 0
			}
			n := float64(len(all))
			return r - (mean(all)*n-r)/(n-1)
		},
		"rae": nil,
	}
	for name, formula := range formulas {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				b := drawBatchOfAgents(t)
				cfg := testConfig()
				cfg.Advantage.Name = name
				s := credited(t, cfg, b)
				row := map[place]int{}
				for i, p := range places(b) {
					row[p] = i
				}
				baselines := map[string]float64{}
				for g, group := range b.Groups {
					split := false
					for _, m := range group.Members {
						split = split || !m.PassedOver && m.Trajectory.AgentRewards != nil
					}
					var agents []string
					parts := map[string][]part{}
					for k, m := range group.Members {
						if m.PassedOver {
							continue
						}
						mine := map[string]*part{}
						for i, seg := range m.Trajectory.Segments {
							agent := seg.Agent
							if !split {
								agent = "everyone"
							}
							if mine[agent] == nil && acts(seg) {
								reward := m.Trajectory.Reward
								if own, named := m.Trajectory.AgentRewards[agent]; named && split {
									reward = own
								}
								mine[agent] = &part{reward: reward + m.Shaping}
								if !slices.Contains(agents, agent) {
									agents = append(agents, agent)
								}
							}
							if acts(seg) {
								mine[agent].at = append(mine[agent].at, place{g, k, i})
								for _, turn := range m.Trajectory.Turns {
									if turn.Segment == i {
										mine[agent].reward += turn.Credit()
									}
								}
							}
						}
						for agent, p := range mine {
							parts[agent] = append(parts[agent], *p)
						}
					}
					for _, agent := range agents {
						var all []float64
						for _, p := range parts[agent] {
							all = append(all, p.reward)
						}
						for _, p := range parts[agent] {
							var want float64
							if formula != nil {
								want = formula(p.reward, all)
							} else {
								who := agent
								if who == "everyone" {
									who = ""
								}
								want = p.reward - baselines[who]
								baselines[who] += (1 - 0.95) * want
							}
							for _, at := range p.at {
								for j := s.rows.Offsets[row[at]]; j < s.rows.Offsets[row[at]+1]; j++ {
									require.InDelta(t, want*float64(s.rows.Mask[j]), s.result.Advantages[j], 1e-9, "agent %q at %v", agent, at)
								}
							}
						}
					}
				}
			})
		})
	}
}

// duel is an episode of two agents that each say one word: the first is paid for saying 2, the second for saying 3, and each
// pays for what the other is paid.
func duel(table []float32, seed uint64, byAgent bool) *schemas.Trajectory {
	said := func(prompt int32, seed uint64) (schemas.Segment, int32) {
		t := enginetest.BigramRollout(table, vocab, &schemas.Ticket{Cursor: uint64(prompt), Seed: seed, Sampling: schemas.Sampling{Temperature: 1}}, 0)
		s := t.Segments[0]
		return schemas.Segment{
			Tokens: s.Tokens[:3], ActionMask: s.ActionMask[:3], Logprobs: s.Logprobs[:3], Versions: s.Versions[:3], Temperature: 1,
		}, s.Tokens[2]
	}
	first, x := said(4, seed)
	second, y := said(5, seed+1e6)
	first.Agent, second.Agent = "first", "second"
	won := 0.0
	if x == 2 {
		won++
	}
	if y == 3 {
		won--
	}
	t := &schemas.Trajectory{
		ID: fmt.Sprint(seed), Segments: []schemas.Segment{first, second}, Stop: schemas.StopAnswer, Reward: won,
		Turns: []schemas.Turn{{Segment: 0, Start: 2, End: 3}, {Segment: 1, Start: 2, End: 3}},
	}
	if byAgent {
		t.AgentRewards = map[string]float64{"first": won, "second": -won}
	}
	return t
}

// Two agents of one episode whose rewards are opposed: each learns its own, where each is given its own, and the second learns the
// first's, against itself, where both are given the trajectory's.
func TestTwoAgentsWithOpposedRewardsEachLearnTheirOwn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"grpo", "rloo", "reinforce_pp", "rae", "hierarchical_grpo"} {
		for _, byAgent := range []bool{true, false} {
			cfg := testConfig()
			cfg.Steps, cfg.BatchGroups, cfg.Minibatches, cfg.Advantage.Name = 40, 4, 1, name
			policy := enginetest.NewBigram(vocab)
			l, err := New(cfg, Deps{Engine: policy})
			require.NoError(t, err)
			for version := range cfg.Steps {
				b := &batch.Batch{Version: version}
				for g := range 4 {
					var group batch.Taken
					for k := range 8 {
						group.Members = append(group.Members, memberOf(duel(policy.Table, batch.Seed(7, uint64(version), g, k)%1e6, byAgent), 0))
					}
					b.Groups = append(b.Groups, group)
				}
				for i := range b.Groups {
					for k := range b.Groups[i].Members { // sampled by the policy as it stands
						for j := range b.Groups[i].Members[k].Trajectory.Segments {
							b.Groups[i].Members[k].Trajectory.Segments[j].Versions[2] = int32(version)
						}
					}
				}
				_, err := l.Learn(t.Context(), b)
				require.NoError(t, err)
			}
			first := math.Exp(enginetest.BigramLogprobs(policy.Table, vocab, 4)[2])
			second := math.Exp(enginetest.BigramLogprobs(policy.Table, vocab, 5)[3])
			require.Greater(t, first, 0.9, "%s, by agent %t", name, byAgent)
			if byAgent {
				require.Greater(t, second, 0.9, name)
			} else {
				require.Less(t, second, 1./vocab, "%s: the second agent learns what pays the first", name)
			}
		}
	}
}
