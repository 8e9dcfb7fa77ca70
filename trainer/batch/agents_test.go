package batch

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// named is a segment of an agent.
func named(agent string, mask ...uint8) schemas.Segment {
	s := segment(1, mask...)
	s.Agent = agent
	return s
}

// played is a trajectory of two agents as a producer sends it and a trainer reads it.
func played(t *testing.T, sample int, reward float64, agents map[string]float64) *schemas.Trajectory {
	t.Helper()
	tr := trajectory(0, 0, sample, 2, 0, 1)
	tr.Task, tr.PromptID, tr.Producer, tr.Stop = "game", "q", "p", schemas.StopAnswer
	tr.Segments = []schemas.Segment{named("proposer", 0, 1), named("solver", 0, 1, 1), named("proposer", 0, 0, 1)}
	tr.Turns = []schemas.Turn{
		{Segment: 0, Start: 1, End: 2, Reward: 0.25}, {Segment: 1, Start: 1, End: 3, Reward: 0.5}, {Segment: 2, Start: 2, End: 3, Reward: -0.25},
	}
	tr.Reward, tr.AgentRewards = reward, agents
	data, err := schemas.Marshal(tr)
	require.NoError(t, err)
	var read schemas.Trajectory
	require.NoError(t, schemas.Unmarshal(data, &read))
	require.NoError(t, read.Validate())
	require.Equal(t, len(agents) > 0, read.AgentRewards != nil, "what was sent is what is read")
	return &read
}

func TestEachAgentIsCreditedWithItsOwnReward(t *testing.T) {
	t.Parallel()
	shape := func(*schemas.Trajectory) float64 { return -4 }
	with := NewMember(schemas.Delivery{Trajectory: played(t, 0, 1, map[string]float64{"solver": 8})}, shape)
	without := NewMember(schemas.Delivery{Trajectory: played(t, 1, 2, nil)}, shape)
	greedy := NewMember(schemas.Delivery{Trajectory: played(t, 1, 3, map[string]float64{"proposer": 16})}, shape)
	lone := NewMember(schemas.Delivery{Trajectory: &schemas.Trajectory{Reward: 5, Segments: []schemas.Segment{named("judge", 0, 1)}}}, nil)
	r := NewRows(&Batch{Groups: []Taken{
		{Members: []Member{without}, Baseline: &greedy},
		{Members: []Member{with, without, lone}, Baseline: &greedy},
	}})
	require.Equal(t, []float64{
		0, 0.25, 0, 0, 0.5, 0, 0, 2 - 4 - 0.25, // as ever: the whole reward at the end
		0, 0.25, 0, 0, 8 - 4 + 0.5, 0, 0, 1 - 4 - 0.25, // an agent that is not named has the trajectory's
		0, 0.25, 0, 0, 2 - 4 + 0.5, 0, 0, 2 - 4 - 0.25, // and so has each of a trajectory that names none
		0, 5,
	}, r.Rewards)
	require.Equal(t, []int{0, 0, 0, 1, 1, 1, 1, 1, 1, 1}, r.Group)
	require.Equal(t, []int{0, 0, 0, 1, 1, 1, 2, 2, 2, 3}, r.Trajectory)
	require.Equal(t, []int{0, 0, 0, 1, 2, 1, 3, 4, 3, 5}, r.Part)
	require.Equal(t, []int{0, 0, 0, 1, 2, 1, 1, 2, 1, 3}, r.PartGroup)
	require.Equal(t, []int{0, 0, 0, 2, 2, 2, 2, 2, 2, 1}, r.Peers)
	proposer, solver, judge := agentNumber("proposer"), agentNumber("solver"), agentNumber("judge")
	require.Equal(t, []int{0, 0, 0, proposer, solver, proposer, proposer, solver, proposer, judge}, r.Agent)
	whole, asProposer, asSolver := 3-4+0.5, 16-4+0., 3-4+0.5
	require.Equal(t, []float64{whole, whole, whole, asProposer, asSolver, asProposer, asProposer, asSolver, asProposer, whole}, r.Baselines)
	require.Equal(t, 4, r.Trajectories)
	require.Equal(t, 2, r.Groups)
	plain := NewRows(&Batch{Groups: []Taken{{Members: []Member{without}}, {Members: []Member{without, without}}}})
	require.Equal(t, plain.Trajectory, plain.Part)
	require.Equal(t, plain.Group, plain.PartGroup)
	require.Zero(t, plain.Agent[0])
}

// What the turns of an agent that sampled nothing were given is nobody's.
func TestAnAgentThatSampledNothingIsNotCredited(t *testing.T) {
	t.Parallel()
	tr := &schemas.Trajectory{
		Segments: []schemas.Segment{named("a", 0, 1), named("b", 0, 0)}, AgentRewards: map[string]float64{"a": 1, "b": 2},
		Turns: []schemas.Turn{{Segment: 1, Start: 1, End: 2, Reward: 4}},
	}
	m := NewMember(schemas.Delivery{Trajectory: tr}, nil)
	require.Equal(t, []float64{0, 1}, NewRows(&Batch{Groups: []Taken{{Members: []Member{m}}}}).Rewards)
	require.Equal(t, map[string]float64{"a": 1}, m.agentReturns())
}

// A group of a game that adds up to nothing is worth training on, as long as some agent did better once than another time.
func TestAGroupIsKeptForTheSakeOfOneAgent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		first, second map[string]float64
		judge, kept   bool
	}{
		{"nobody's differ", map[string]float64{"proposer": 1, "solver": -1}, map[string]float64{"proposer": 1, "solver": -1}, false, false},
		{"one agent's differ", map[string]float64{"proposer": 1, "solver": -1}, map[string]float64{"proposer": 1, "solver": 1}, false, true},
		{"both differ and their sum does not", map[string]float64{"proposer": 1, "solver": -1}, map[string]float64{"proposer": -1, "solver": 1}, false, true},
		{"without rewards of agents", nil, nil, false, false},
		{"an agent that is in one alone says nothing", map[string]float64{"proposer": 1, "solver": 1}, map[string]float64{"proposer": 1, "solver": 1}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := New(Config{Run: "r", Groups: 1, MinGroup: 2, Keep: unequal}, Start{})
			a.Open(Group{Size: 2})
			for i, agents := range []map[string]float64{c.first, c.second} {
				tr := played(t, i, 0, agents)
				if c.judge && i == 1 {
					tr.Segments = append(tr.Segments, named("judge", 0, 1))
				}
				a.Add(schemas.Delivery{Sequence: uint64(i + 1), Trajectory: tr})
			}
			b, err := a.Take()
			require.NoError(t, err)
			require.Equal(t, c.kept, b != nil)
			if c.kept {
				require.Equal(t, 2, b.Trajectories(), "an episode is one trajectory however many agents it has")
				require.Len(t, a.Commit().Verdicts, 2)
			}
		})
	}
}

func TestRewardsOfAgentsThatCannotBeCreditedAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*schemas.Trajectory)
		want   string
	}{
		{"sound", func(*schemas.Trajectory) {}, ""},
		{"as bounded", func(t *schemas.Trajectory) { t.AgentRewards["solver"] = 99.5 }, ""},
		{"of nobody", func(t *schemas.Trajectory) { t.AgentRewards["judge"] = 1 }, "agent_rewards[judge]: no segment is of this agent"},
		{"no number", func(t *schemas.Trajectory) { t.AgentRewards["solver"] = math.NaN() }, "agent_rewards[solver] is NaN"},
		{"without end", func(t *schemas.Trajectory) { t.AgentRewards["solver"] = math.Inf(-1) }, "agent_rewards[solver] is -Inf"},
		{"too much", func(t *schemas.Trajectory) { t.AgentRewards["solver"] = 101 }, "agent_rewards[solver] is 101, trainer.limits.max_reward is 100"},
		{"too much with its turns", func(t *schemas.Trajectory) { t.AgentRewards["solver"] = 99.75 }, "return of agent solver is 100.25"},
		{"a long name", func(t *schemas.Trajectory) { t.Segments[0].Agent = strings.Repeat("x", 257) }, "segment 0: the agent's name has 257 bytes"},
		{"too many", func(t *schemas.Trajectory) {
			for i := range 256 {
				t.AgentRewards[strings.Repeat("x", i+1)] = 1
			}
		}, "agent_rewards: 257 agents, at most 256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := New(Config{Run: "r", Groups: 1, MinGroup: 1, Check: Checker(64, 0), Bounds: Bounds{Reward: 100}}, Start{})
			a.Open(Group{Size: 2})
			tr := played(t, 0, 1, map[string]float64{"solver": 1})
			c.change(tr)
			e := a.Add(schemas.Delivery{Sequence: 1, Trajectory: tr})
			if c.want == "" {
				require.Empty(t, e.Verdicts)
				return
			}
			require.Len(t, e.Verdicts, 1)
			require.Equal(t, schemas.ReasonPoisoned, e.Verdicts[0].Reason)
			require.Contains(t, e.Verdicts[0].Detail, c.want)
		})
	}
}

// Where the solvers of one episode are compared with each other, a group is worth training on as soon as those of one episode differ, and
// not because those of two episodes do.
func TestAGroupIsKeptForTheSakeOfOneEpisode(t *testing.T) {
	t.Parallel()
	rewards := func(one, two float64) map[string]float64 {
		return map[string]float64{"proposer": 0, "solver-1": one, "solver-2": two}
	}
	for _, c := range []struct {
		name                  string
		first, second         map[string]float64
		keptWithin, keptApart bool
	}{
		{"as each other's in both", rewards(1, 0), rewards(1, 0), true, false},
		{"equal in each", rewards(1, 1), rewards(0, 0), false, true},
		{"all equal", rewards(1, 1), rewards(1, 1), false, false},
	} {
		for _, within := range [][]string{{"solver"}, nil, {"proposer"}} {
			a := New(Config{Run: "r", Groups: 1, MinGroup: 2, Keep: unequal, EpisodeAgents: within}, Start{})
			a.Open(Group{Size: 2})
			for i, agents := range []map[string]float64{c.first, c.second} {
				tr := played(t, i, 0, nil)
				tr.Turns, tr.AgentRewards = nil, agents
				tr.Segments = []schemas.Segment{named("proposer", 0, 1), named("solver-1", 0, 1), named("solver-2", 0, 1)}
				a.Add(schemas.Delivery{Sequence: uint64(i + 1), Trajectory: tr})
			}
			b, err := a.Take()
			require.NoError(t, err)
			want := c.keptApart
			if slices.Contains(within, "solver") {
				want = c.keptWithin
			}
			require.Equal(t, want, b != nil, "%s, within %v", c.name, within)
			if b != nil {
				require.Equal(t, []string{"proposer", "solver", "solver", "proposer", "solver", "solver"}, NewRows(b).Role)
			}
		}
	}
}
