package schemas

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A fork has the contexts up to the last turn that is taken, which ends the last of them, and the spans of the turns.
func TestAForkIsTheBeginningOfATrajectory(t *testing.T) {
	parent := sampleTrajectory()
	whole := len(parent.Segments[0].Tokens)
	for _, c := range []struct{ turns, segments, tokens int }{{1, 1, 4}, {2, 1, whole}, {3, 2, whole + 2}} {
		f := ForkAt(parent, c.turns, 5)
		require.Equal(t, parent.ID, f.Parent)
		require.Equal(t, uint64(5), f.Seed)
		require.Len(t, f.Turns, c.turns)
		require.Len(t, f.Segments, c.segments)
		require.Equal(t, c.tokens, f.Tokens())
		for i, turn := range f.Turns {
			was := parent.Turns[i]
			require.Equal(t, Turn{Segment: was.Segment, Start: was.Start, End: was.End}, turn, "no calls, no rewards")
			require.Equal(t, parent.Segments[was.Segment].Tokens[:was.End], f.Segments[turn.Segment].Tokens[:turn.End])
		}
		ticket := sampleTicket()
		ticket.Fork = f
		require.NoError(t, ticket.Validate())
	}
	require.Len(t, parent.Segments[0].Tokens, whole, "the parent keeps its own")
}

func TestAForkThatCannotBeReplayedIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Fork)
		fault string
	}{
		"no parent":    {func(f *Fork) { f.Parent = "" }, "ticket.fork.parent: must not be empty"},
		"no turns":     {func(f *Fork) { f.Turns = nil }, "ticket.fork.turns: must not be empty"},
		"no segment":   {func(f *Fork) { f.Segments = nil }, "ticket.fork.turns[0].segment: 0: there are 0 segments"},
		"not sampled":  {func(f *Fork) { f.Turns[0].Start = 1 }, "ticket.fork.turns[0].end: [1, 4): token 1 was not sampled"},
		"beyond":       {func(f *Fork) { f.Turns[0].End = 9 }, "ticket.fork.turns[0].end: [2, 9): not a span of the segment's 4 tokens"},
		"log-p's lack": {func(f *Fork) { f.Segments[0].Logprobs = nil }, "ticket.fork.segments[0].logprobs: 0 entries for 4 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			ticket := sampleTicket()
			c.spoil(ticket.Fork)
			require.ErrorContains(t, ticket.Validate(), c.fault)
		})
	}
	tr := sampleTrajectory()
	tr.Forked.Turns = 4
	require.ErrorContains(t, tr.Validate(), "trajectory.forked.turns: 4: must be in [0, 3], the turns of the trajectory")
}

// A fork makes a message one of version 3, alone.
func TestWhatVersion2DidNotHaveIsWrittenAsVersion3(t *testing.T) {
	for name, m := range map[string]message{"fork": &Ticket{Fork: new(Fork)}, "forked": &Trajectory{Forked: new(Forked)}} {
		data, err := Marshal(m)
		require.NoError(t, err)
		_, version, err := Peek(data)
		require.NoError(t, err)
		require.Equal(t, 3, version, name)
	}
}
