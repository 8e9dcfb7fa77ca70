package trainer

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// A run of episodes of two agents whose rewards add up to nothing trains on them, counts episodes, and reports what each agent came
// to.
func TestARunCreditsTheAgentsOfAnEpisode(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"grpo", "rae", "remax", "grpo_passk"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			cfg.Advantage.Name = name
			require.True(t, cfg.Selection.DropZeroVariance)
			w := newWorld(vocab)
			w.change = func(_ uint64, tr *schemas.Trajectory) {
				second := tr.Segments[0]
				second.Tokens = slices.Clone(second.Tokens)
				tr.Segments[0].Agent, second.Agent = "first", "second"
				tr.Segments = append(tr.Segments, second)
				tr.AgentRewards = map[string]float64{"first": 1 + tr.Reward, "second": -tr.Reward}
				tr.Reward, tr.Turns = 0, nil
				require.NoError(t, tr.Validate())
			}
			policy := enginetest.NewBigram(vocab)
			require.NoError(t, Run(t.Context(), cfg, Deps{
				Engine: dying{policy, w.crash}, Stream: w, Prompts: prompts{vocab},
				Observer: func(e schemas.Event) {
					if e.Type != schemas.EventStepDone {
						return
					}
					require.Zero(t, e.Metrics["reward/mean"])
					require.InDelta(t, 1, e.Metrics["reward/agent/first"]+e.Metrics["reward/agent/second"], 1e-9)
					require.LessOrEqual(t, e.Metrics["batch/trajectories"], float64(cfg.BatchGroups*cfg.GroupSize))
				},
			}))
			steps := 0
			for _, r := range audit(t, cfg, w) {
				steps = max(steps, int(r.Step))
			}
			require.EqualValues(t, cfg.Steps, steps)
			require.NotEqual(t, make([]float32, vocab*vocab), policy.Table)
		})
	}
}

// A run whose solvers are compared within their episode gives each its reward less the mean of its own game's solvers, whatever the
// other games of the group came to; without the key, less the mean of the same solver's of the group.
func TestARunComparesAgentsWithinTheirEpisode(t *testing.T) {
	t.Parallel()
	for _, within := range [][]string{nil, {"solver"}} {
		t.Run(strings.Join(within, " "), func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			keys := advantage.Keys("hierarchical_grpo").(*advantage.HierarchicalGRPO)
			keys.EpisodeAgents = within
			cfg.Steps, cfg.Advantage.Name, cfg.Advantage.Own = 2, "hierarchical_grpo", keys
			cfg.Archive = archive.Config{Bytes: 1 << 20, Samples: -1}
			w := newWorld(vocab)
			var mu sync.Mutex
			sent := map[string]*schemas.Trajectory{}
			w.change = func(_ uint64, tr *schemas.Trajectory) {
				segment := tr.Segments[0]
				tr.Segments, tr.Turns, tr.AgentRewards = nil, nil, map[string]float64{}
				for i, agent := range []string{"proposer", "solver-1", "solver-2", "solver-3"} {
					s := segment
					s.Tokens, s.Agent = slices.Clone(s.Tokens), agent
					tr.Segments = append(tr.Segments, s)
					tr.AgentRewards[agent] = float64(i*i) / 8 * (1 + float64(tr.Sample)) // solvers of all games differ, and games too
				}
				require.NoError(t, tr.Validate())
				mu.Lock()
				defer mu.Unlock()
				sent[tr.ID] = tr
			}
			require.NoError(t, Run(t.Context(), cfg, Deps{
				Engine: dying{enginetest.NewBigram(vocab), w.crash}, Stream: w, Prompts: prompts{vocab}, Observer: func(schemas.Event) {},
			}))
			store, err := checkpoint.Open(cfg.Checkpoint)
			require.NoError(t, err)
			dir := filepath.Join(store.Dir(), archive.Folder)
			lines, _, err := archive.ReadLines(dir, 1, 0) // all fits into the first
			require.NoError(t, err)
			var entries []archive.Entry
			groups := map[string][]*schemas.Trajectory{}
			for line := range strings.Lines(string(lines)) {
				var e archive.Entry
				require.NoError(t, json.Unmarshal([]byte(line), &e))
				if e.Fate == archive.FateTrained {
					entries = append(entries, e)
					group := fmt.Sprint(e.Step, sent[e.ID].Group)
					groups[group] = append(groups[group], sent[e.ID])
				}
			}
			require.NotEmpty(t, entries)
			for _, e := range entries {
				tr := sent[e.ID]
				numbers, err := archive.ReadNumbers(dir, 1, &e)
				require.NoError(t, err)
				require.Len(t, numbers, 4)
				for _, n := range numbers {
					agent := tr.Segments[n.Segment].Agent
					var peers []float64
					if within != nil && agent != "proposer" {
						for _, s := range tr.Segments[1:] {
							peers = append(peers, tr.AgentRewards[s.Agent])
						}
					} else {
						for _, other := range groups[fmt.Sprint(e.Step, tr.Group)] {
							peers = append(peers, other.AgentRewards[agent])
						}
					}
					want := tr.AgentRewards[agent]
					for _, x := range peers {
						want -= x / float64(len(peers))
					}
					for k, m := range tr.Segments[n.Segment].ActionMask {
						require.InDelta(t, want*float64(m), n.Advantages[k], 1e-6, "%s of %s", agent, e.ID)
					}
				}
			}
		})
	}
}
