package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/notebook"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/api"
	"github.com/weir-rl/weir/producers/tools/starlark"
	"github.com/weir-rl/weir/schemas"
)

func open(t *testing.T, cfg api.Config) *tasks.Setup {
	t.Helper()
	s, err := api.Type().Open(t.Context(), tasks.Opening{Name: "api", Config: &cfg, Seed: 1, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return s
}

// session opens cells in the world of a prompt.
func session(t *testing.T, s *tasks.Setup, world []byte) func(cell string) producers.Observation {
	t.Helper()
	cfg := starlark.DefaultConfig()
	cfg.SessionsPerWorker = 16
	tool, err := starlark.New(cfg, s.Worlds)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tool.Close(context.WithoutCancel(t.Context()), "e")) })
	require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e", World: world}))
	return func(cell string) producers.Observation {
		o, err := tool.Call(t.Context(), producers.Call{Arguments: cell, Episode: "e"})
		require.NoError(t, err)
		return o
	}
}

func TestOnlyTheCallThatTheSignatureAsksForIsRight(t *testing.T) {
	t.Parallel()
	s := open(t, api.DefaultConfig())
	var single schemas.Prompt
	for _, q := range s.Data.Questions[tasks.Train] {
		if q.Source == api.Single {
			single = q
			break
		}
	}
	var world struct {
		Functions []struct {
			Name, Word     string
			Swapped, Twice bool
		}
	}
	require.NoError(t, json.Unmarshal(single.World, &world))
	f := world.Functions[0]
	words := strings.Fields(single.Text)
	right := 0
	for _, word := range []string{"tin", "oak", "wax", "salt", "silk", "clay", "jade", "wool", "zinc", "lime", "rope", "coal", "moss", "flax", "horn", "pine", "rust", "sand", "tar", "yarn"} {
		for _, order := range [][2]string{{words[0], words[2]}, {words[2], words[0]}} {
			for _, twice := range []bool{false, true} {
				cell := fmt.Sprintf("%s ( %s , %s , %s )", f.Name, order[0], order[1], word)
				if twice {
					cell = f.Name + " ( " + cell + " )"
				}
				run := session(t, s, single.World)
				o := run("submit ( " + cell + " )")
				if o.Answer == nil {
					require.Equal(t, "Error: "+f.Name+": takes other arguments", strings.TrimSpace(o.Text), cell)
					continue
				}
				if *o.Answer == single.Answers[0] {
					right++
					require.Equal(t, f.Word, word)
					require.Equal(t, f.Twice, twice)
				}
			}
		}
	}
	require.Equal(t, 1, right, "of 80")
	run := session(t, s, single.World)
	require.Equal(t, 1, run("help ( 7 )").Errors)
	require.Contains(t, run("help ( "+f.Name+" )").Text, f.Name+" takes the ")
	cfg := api.DefaultConfig()
	cfg.Help = false
	require.Equal(t, 1, session(t, open(t, cfg), single.World)("help ( "+f.Name+" )").Errors)
}

// Each demonstration is run for real: what it shows of an output is what the cell says.
func TestDemonstrationsShowWhatCellsSay(t *testing.T) {
	t.Parallel()
	s := open(t, api.DefaultConfig())
	caught := &catcher{}
	written, err := s.Demonstrations.(tasks.Rewritable).Rewrite(caught)
	require.NoError(t, err)
	solved := 0
	const count = 200
	for i := range uint64(count) {
		caught.got = nil
		written.Demonstration(i)
		d := caught.got[0]
		world, answer := api.WorldOf(i)
		run := session(t, s, world)
		for k, step := range d.Steps {
			o := run(step.Arguments)
			if k == len(d.Steps)-1 {
				require.True(t, (o.Answer != nil) != (o.Errors == 1), "%v: %s", d.Steps, o.Text)
				if o.Answer != nil && *o.Answer == answer {
					solved++
				}
				break
			}
			require.Equal(t, step.Result, strings.TrimSpace(o.Text), "%q", step.Arguments)
		}
	}
	require.InDelta(t, 0.43, float64(solved)/count, 0.1, "the demonstrator is wrong as often as its rates say")
}

// catcher is a demonstrator that keeps what it is given.
type catcher struct{ got []tasks.Demonstration }

func (c *catcher) Demonstrate(d tasks.Demonstration) ([]int32, []uint8, error) {
	c.got = append(c.got, d)
	return []int32{0, 1}, []uint8{0, 1}, nil
}

func TestThePolicyCanWriteEveryWordAndNoResult(t *testing.T) {
	t.Parallel()
	s := open(t, api.DefaultConfig())
	agent, err := notebook.New(notebook.DefaultConfig(), agents.Opening{Tokenizer: s.Tokenizer, Tools: []producers.ToolSpec{{Name: "starlark"}}})
	require.NoError(t, err)
	written, err := s.Demonstrations.(tasks.Rewritable).Rewrite(agent)
	require.NoError(t, err)
	unknown, ok := s.Tokenizer.ID(tasks.TokenUnknown)
	require.True(t, ok)
	longest := 0
	for i := range uint64(2000) {
		tokens, mask := written.Demonstration(i)
		require.NotContains(t, tokens, unknown, s.Tokenizer.Decode(tokens))
		require.Len(t, mask, len(tokens))
		longest = max(longest, len(tokens))
	}
	require.LessOrEqual(t, longest, 128)
	again, _ := written.Demonstration(7)
	same, _ := written.Demonstration(7)
	require.Equal(t, again, same)
	for _, q := range s.Data.Questions[tasks.Test] {
		require.NotContains(t, s.Tokenizer.Encode(q.Text), unknown)
		_, one := s.Tokenizer.ID(q.Answers[0])
		require.True(t, !one || len(q.Answers[0]) < 3, "an answer is no word: %s", q.Answers[0])
	}
}

func TestSplitsShareNoFunction(t *testing.T) {
	t.Parallel()
	s := open(t, api.DefaultConfig())
	by := map[string]tasks.Split{}
	for _, split := range tasks.Splits() {
		for _, q := range s.Data.Questions[split] {
			var world struct{ Functions []struct{ Name string } }
			require.NoError(t, json.Unmarshal(q.World, &world))
			for _, f := range world.Functions {
				before, seen := by[f.Name]
				require.True(t, !seen || before == split, "%s is in %s and %s", f.Name, before, split)
				by[f.Name] = split
			}
		}
	}
	require.Len(t, by, 200)
	require.Equal(t, s.Data.Questions, open(t, api.DefaultConfig()).Data.Questions)
	other := api.DefaultConfig()
	other.Seed = 2
	require.NotEqual(t, s.Data.Questions, open(t, other).Data.Questions)
}

// Python's and Starlark's keywords and functions must not be names.
func TestNamesAreNoWordsOfTheLanguage(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no Python to ask for its words")
	}
	out, err := exec.CommandContext(t.Context(), python, "-c", "import keyword, builtins; print(*keyword.kwlist, *dir(builtins))").Output()
	require.NoError(t, err)
	taken := strings.Fields(string(out))
	s := open(t, api.DefaultConfig())
	for _, q := range s.Data.Questions[tasks.Train] {
		for word := range strings.FieldsSeq(q.Text) {
			require.False(t, slices.Contains(taken, word), word)
		}
	}
}
