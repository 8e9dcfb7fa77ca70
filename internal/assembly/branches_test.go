package assembly

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools/calculator"
	"github.com/weir-rl/weir/schemas"
)

// silentTool says nothing about what its calls change.
type silentTool struct{}

func (silentTool) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "mail"} }

func (silentTool) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{}, nil
}

// comingAgent comes for episodes by itself.
type comingAgent struct{ producers.Agent }

func (comingAgent) Awaited() bool { return true }

// An episode whose agent comes by itself is not continued; nor, unless it is allowed, an episode of whose tools one does not say that it
// may be called again, once a given turn has called the tool.
func TestAnEpisodeThatCannotBeContinuedIsRefusedByName(t *testing.T) {
	was := &schemas.Trajectory{ID: "g000001-a0-2", Turns: []schemas.Turn{
		{Calls: []schemas.ToolCall{{Tool: "calculator"}, {Tool: "none of it"}}}, {Calls: []schemas.ToolCall{{Tool: "mail"}}}, {},
	}}
	tools := []producers.Tool{calculator.Tool{}, silentTool{}}
	ask := func(turns int) *BranchRequest {
		return &BranchRequest{Task: &Task{}, Turns: []int{0, turns}, Continuations: producers.Continuations{Was: was}}
	}
	require.NoError(t, ask(1).checkContinuable(tools))
	require.ErrorContains(t, ask(2).checkContinuable(tools),
		"trajectory g000001-a0-2 called tool mail, which does not say that its calls change nothing outside the episode")
	allowed := ask(2)
	allowed.CallAgain = true
	require.NoError(t, allowed.checkContinuable(tools))

	coming := ask(0)
	coming.Task.agent = comingAgent{}
	require.ErrorContains(t, coming.checkContinuable(tools), "trajectory g000001-a0-2: its agent comes for episodes by itself")
}

// Finding F6 of the tenth reader: the command named the key of an agent that comes by itself, which it could not have used.
func TestAnEpisodeOfAnAgentThatComesIsRefusedBeforeItsKeyIsAskedFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
tasks:
  boxes: {type: dataset, files: [x.jsonl], agent: visitor}
  words: {type: dataset, files: [x.jsonl], agent: chat}
agents:
  visitor: {type: external}
`), 0o600))
	t.Setenv("WEIR_AGENT_KEY", "")
	doors := builtin.Doors()
	cfg, _, err := Resolve(doors, config.Sources{Files: []string{file}, Flags: map[string]string{"run.dir": t.TempDir()}})
	require.NoError(t, err)
	s, err := New(cfg, Options{Parts: doors, Environ: []string{}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	was := func(task string) *schemas.Trajectory { return &schemas.Trajectory{ID: "g000001-a0-2", Task: task} }
	require.ErrorContains(t, s.CheckContinuable(was("boxes")), "trajectory g000001-a0-2: its agent comes for episodes by itself")
	require.NoError(t, s.CheckContinuable(was("words")))
	require.NoError(t, s.CheckContinuable(was("none of the run")))
}
