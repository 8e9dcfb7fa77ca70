package assembly

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/internal/view"
)

// The page asks a kept version as weir chat does, with the agents and tools of the configuration and no others, and says why where
// nothing answers.
func TestThePagesChatAnswersFromCheckpoints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trainShortly(t, map[string]string{"run.dir": dir, "view.listen": ""})
	doors := builtin.Doors()
	resolved := func(flags map[string]string) func() (*config.Config, error) {
		flags["run.dir"] = dir
		cfg, _, err := Resolve(doors, config.Sources{Written: filepath.Join(dir, "demo", ConfigFile), Flags: flags})
		return func() (*config.Config, error) { return cfg, err }
	}
	c := newChatter(Models{parts: doors}, "", resolved(map[string]string{"tools.calculator.timeout": "1s", "agents.search.type": "search"}))
	offer, err := c.Offer(t.Context(), nil)
	require.NoError(t, err)
	var keys []string
	for _, v := range offer.Versions {
		keys = append(keys, v.Key)
	}
	require.Equal(t, []string{"newest", "1", "0"}, keys, "and no engines: the run is not up")
	require.Equal(t, "library", offer.Tasks[0].Name)
	require.Equal(t, []string{"search"}, offer.Tasks[0].Tools)
	require.Empty(t, offer.Tasks[0].Examples)
	opened, err := c.Tasks(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"search"}, opened[0].Tools)
	require.Len(t, opened[0].Examples, chatExamples)
	require.Contains(t, offer.Agents, "search")
	require.Contains(t, offer.Tools, "calculator")

	ask := func(q view.ChatQuestion) (*view.ChatEnd, []view.ChatMove, error) {
		var moves []view.ChatMove
		q.Question = "what is the capital of sweden zzxy ?"
		end, err := c.Ask(t.Context(), nil, q, func(m view.ChatMove) { moves = append(moves, m) })
		return end, moves, err
	}
	end, moves, err := ask(view.ChatQuestion{Version: "0", Temperature: 1, Seed: 5})
	require.NoError(t, err)
	require.Equal(t, []string{"the policy has never seen: zzxy"}, end.Notes)
	require.Zero(t, end.Newest)
	require.Positive(t, end.Sampled)
	require.Equal(t, "prompt", moves[0].Kind)
	require.Contains(t, moves[0].Text, "sweden")
	require.Equal(t, "policy", moves[1].Kind)
	same, again, err := ask(view.ChatQuestion{Version: "0", Temperature: 1, Seed: 5})
	require.NoError(t, err)
	require.Equal(t, end.Sampled, same.Sampled)
	for i := range moves {
		moves[i].Seconds, again[i].Seconds = 0, 0
	}
	require.Equal(t, moves, again)
	newest, _, err := ask(view.ChatQuestion{Version: view.ChatNewest, Tools: []string{"calculator"}})
	require.NoError(t, err)
	require.EqualValues(t, 1, newest.Newest)
	require.Contains(t, newest.Command, "--step 1 --seed 0 --task library --tools calculator")
	require.Equal(t, "1", c.open.chosen.version)
	c.releaseIdle()
	require.Nil(t, c.open, "what nobody asks for a while leaves the memory")

	for want, q := range map[string]view.ChatQuestion{
		"not kept any more":                      {Version: "9"},
		`version "x": want engines or the num`:   {Version: "x"},
		"the run is not up":                      {Version: view.ChatEngines},
		`task "other": the run has the tasks li`: {Version: "0", Task: "other"},
		`agent "nobody": the run's configuratio`: {Version: "0", Agent: "nobody"},
		`tool "shell": the run's configuration`:  {Version: "0", Tools: []string{"shell"}},
	} {
		_, moves, err := ask(q)
		require.ErrorContains(t, err, want)
		require.Empty(t, moves)
	}
	_, err = c.Ask(t.Context(), nil, view.ChatQuestion{Version: "0", Question: " ? "}, nil)
	require.ErrorContains(t, err, "the question is empty")
	c.models.memory = machine.Memory{Bytes: 100e6, From: "of this machine"}
	_, _, err = ask(view.ChatQuestion{Version: "0"})
	require.ErrorContains(t, err, "the memory of this machine is 0.1 GB. Ask the run's engines")
	c.Close()
	c.Close()
	_, _, err = ask(view.ChatQuestion{Version: "0"})
	require.ErrorIs(t, err, errChatClosed)

	elsewhere := newChatter(Models{parts: doors}, "the viewer's key may not", func() (*config.Config, error) {
		cfg, err := resolved(map[string]string{})()
		if err == nil {
			other := *cfg
			other.Trainer.Checkpoint.Dir, cfg = t.TempDir(), &other
		}
		return cfg, err
	})
	defer elsewhere.Close()
	offer, err = elsewhere.Offer(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, offer.Versions)
	require.Equal(t, []string{"no checkpoint of the run is on this machine"}, offer.Notes)
}
