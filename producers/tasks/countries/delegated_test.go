package countries

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/team"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// The demonstrations of a team are of both roles, in words of the vocabulary. Without the faults that are demonstrated on purpose each look-up
// of a worker answers its question, and each plan asks, one place after the other, for what the question names.
func TestDemonstrationsOfATeam(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Demo.OneHopFirst, cfg.Demo.StopEarly, cfg.Demo.WrongField = 10, 0, 0
	of := team.DefaultConfig()
	of.Planner.System = "plan :"
	task, err := New(cfg, tasks.Opening{Tags: of.TagTokens(), Texts: of.Texts()})
	require.NoError(t, err)
	agent, err := team.New(t.Context(), of, agents.Opening{Tokenizer: task.Tokenizer, Tools: []producers.ToolSpec{{Name: "search"}}})
	require.NoError(t, err)
	written, err := task.Rewrite(agent)
	require.NoError(t, err)
	unknown, _ := task.Tokenizer.ID(tasks.TokenUnknown)
	seen := map[string]int{}
	for i := range uint64(400) {
		d := written.(*delegated).demonstrationAt(i)
		tokens, mask := written.Demonstration(i)
		require.Len(t, mask, len(tokens))
		require.NotContains(t, tokens, unknown)
		again, _ := written.Demonstration(i)
		require.Equal(t, tokens, again)
		text := task.Tokenizer.Decode(tokens)
		subject := strings.TrimSuffix(d.Question[strings.LastIndex(d.Question, " of ")+len(" of "):], " ?")
		if d.Role == team.WorkerRole {
			require.True(t, strings.HasPrefix(text, "<bos> what is the "), text)
			require.Len(t, d.Steps, 1)
			require.Equal(t, subject, d.Steps[0].Arguments)
			mark := " " + strings.Fields(d.Question)[3] + " "
			if strings.Contains(d.Question, " country of ") {
				mark = " is a region of "
			}
			_, said, found := strings.Cut(d.Steps[0].Result, mark)
			require.True(t, found, "%s: %s", d.Question, d.Steps[0].Result)
			require.True(t, strings.HasPrefix(said, d.Answer+" "), "%s: %s: %s", d.Question, d.Steps[0].Result, d.Answer)
			seen[mark]++
			continue
		}
		require.GreaterOrEqual(t, i, cfg.Demo.OneHopFirst)
		require.True(t, strings.HasPrefix(text, "<bos> plan : what is the "), text)
		rest := d.Question
		for k, s := range d.Steps { // each asks for the innermost place, and stands for it from then on
			require.True(t, strings.HasSuffix(rest, strings.TrimPrefix(s.Arguments, "what is ")), "%s: step %d: %s", rest, k, s.Arguments)
			rest = strings.TrimSuffix(rest, strings.TrimPrefix(s.Arguments, "what is ")) + s.Result + " ?"
		}
		require.Equal(t, "what is "+d.Answer+" ?", rest)
		seen[strings.Repeat("delegate ", len(d.Steps))]++
	}
	require.Len(t, seen, len(fields)+2+3, "%v", seen)
	_, err = task.Rewrite(stranger{})
	require.ErrorContains(t, err, "they are of another agent than the task's")
}

type stranger struct{}

func (stranger) Demonstrate(tasks.Demonstration) ([]int32, []uint8, error) { return nil, nil, nil }

// With the faults some plans stop early, and some workers read another field.
func TestDemonstrationsOfATeamHaveFaults(t *testing.T) {
	t.Parallel()
	of := team.DefaultConfig()
	task, err := New(DefaultConfig(), tasks.Opening{Tags: of.TagTokens(), Texts: of.Texts()})
	require.NoError(t, err)
	agent, err := team.New(t.Context(), of, agents.Opening{Tokenizer: task.Tokenizer, Tools: []producers.ToolSpec{{Name: "search"}}})
	require.NoError(t, err)
	written, err := task.Rewrite(agent)
	require.NoError(t, err)
	early, wrong, plans, looks := 0, 0, 0, 0
	from := DefaultConfig().Demo.OneHopFirst
	for i := range uint64(1000) {
		d := written.(*delegated).demonstrationAt(from + i)
		switch places := strings.Count(d.Question, " of "); {
		case d.Role == team.WorkerRole && !strings.Contains(d.Question, " country of ") && !strings.Contains(d.Question, " neighbour of "):
			looks++
			if !strings.Contains(d.Steps[0].Result, " "+strings.Fields(d.Question)[3]+" "+d.Answer+" ") {
				wrong++
			}
		case d.Role == "" && places > 1:
			plans++
			if len(d.Steps) < places {
				early++
			}
		}
	}
	require.InDelta(t, 0.65, float64(early)/float64(plans), 0.1)
	require.InDelta(t, 0.30, float64(wrong)/float64(looks), 0.1)
	require.Equal(t, "planner", schemas.Role(team.PlannerName))
}
