package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/producers/tasks/corpus"
	"github.com/weir-rl/weir/trainer"
)

// Names that a user chooses work in a file, a variable and a flag, and the later source wins.
// toolTypes are the built-in ones.
const toolTypes = "calculator, files, finish, http, mcp, python, retrieve, search, shell, simulated_search, sql, starlark or verltool"

func TestSectionsOfTheUsersOwnAreNamedAnywhere(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `tasks:
  ships: {type: corpus, corpus: c.jsonl, questions: q.jsonl, tools: [slow], agent: patient, limits: {max_turns: 2}}
agents:
  patient: {type: search, invalid: feedback}
tools:
  slow: {type: search, timeout: 5s, latency: {median: 1s, p99: 2s}}
`)
	cfg, origins, err := Resolve(builtin.Doors(), Sources{
		Files: []string{file}, Environ: []string{"WEIR_TASKS__SHIPS__WEIGHT=2", "WEIR_TOOLS__SLOW__TOP_K=3"},
		Flags: map[string]string{"tasks.ships.weight": "3", "tasks.ships.reward.answered": "0.5"},
	})
	require.NoError(t, err)
	require.NoError(t, cfg.Finish())
	require.Equal(t, []string{"ships"}, cfg.Active(), "the default task is not added")
	ships := cfg.Tasks["ships"]
	require.Equal(t, 3, ships.Weight)
	require.Equal(t, "--tasks.ships.weight", origins["tasks.ships.weight"])
	require.Equal(t, "q.jsonl", ships.Own.(*corpus.Config).Questions)
	require.InDelta(t, 0.5, ships.Reward.Own.(*weighted.Config).Answered, 0)
	require.Equal(t, "feedback", Values(cfg)["agents.patient.invalid"])
	require.Equal(t, 3, Values(cfg)["tools.slow.top_k"])
	require.Equal(t, 5*time.Second, cfg.Tools["slow"].Timeout)
	require.Equal(t, 2, cfg.Limits("ships").MaxTurns)
	require.Equal(t, cfg.Trainer.Limits.MaxTokens, cfg.Limits("ships").MaxTokens, "what is not set is the run's")
	require.Nil(t, cfg.Agents["search"], "nobody names it")

	text, err := YAML(cfg)
	require.NoError(t, err)
	again, _, err := Resolve(builtin.Doors(), Sources{Files: []string{writeFile(t, string(text))}})
	require.NoError(t, err)
	require.NoError(t, again.Finish())
	same, err := YAML(again)
	require.NoError(t, err)
	require.Equal(t, string(text), string(same))
}

// A task's limit on turns can grow with the steps, as a file, a variable or a flag says.
func TestTurnsThatGrowWithTheSteps(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "tasks:\n  library: {limits: {max_turns_from: {0: 2, 100: 5}}}\n  countries: {}\n")
	cfg, origins, err := Resolve(builtin.Doors(), Sources{
		Files: []string{file}, Environ: []string{"WEIR_TASKS__LIBRARY__LIMITS__MAX_TURNS_FROM__200=8"},
		Flags: map[string]string{"tasks.library.limits.max_turns_from.0": "3"},
	})
	require.NoError(t, err)
	require.NoError(t, cfg.Finish())
	require.Equal(t, "--tasks.library.limits.max_turns_from.0", origins["tasks.library.limits.max_turns_from.0"])
	require.Equal(t, trainer.TurnSchedule{0: 3, 100: 5, 200: 8}, cfg.TurnSchedule("library"))
	require.Equal(t, 8, cfg.Limits("library").MaxTurns, "scores have the last")
	require.Nil(t, cfg.TurnSchedule("countries"))
	require.Equal(t, cfg.Trainer.Limits.MaxTurns, cfg.Limits("countries").MaxTurns)

	text, err := YAML(cfg)
	require.NoError(t, err)
	again, _, err := Resolve(builtin.Doors(), Sources{Files: []string{writeFile(t, string(text))}})
	require.NoError(t, err)
	require.Equal(t, cfg.TurnSchedule("library"), again.TurnSchedule("library"))

	_, err = load(map[string]string{
		"tasks.library.limits.max_turns_from.5": "2", "tasks.library.limits.max_turns": "4",
		"tasks.countries.limits.max_turns_from.0": "4", "tasks.countries.limits.max_turns_from.7": "3", "tasks.countries.limits.max_turns_from.later": "9",
	})
	for _, want := range []string{
		"tasks.library.limits.max_turns_from.0: missing: say what holds from step 0",
		"tasks.library.limits.max_turns: 4: the task has max_turns_from, which stands in its place",
		`tasks.countries.limits.max_turns_from.later: "later": a step is a whole number`,
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = load(map[string]string{"tasks.library.limits.max_turns_from.0": "4", "tasks.library.limits.max_turns_from.7": "3"})
	require.ErrorContains(t, err, "tasks.library.limits.max_turns_from.7: 3: must be at least 4: the limit grows with the steps")
}

// A run trains on the tasks that any source names, and on the default one when none does.
func TestTheTasksOfARun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		yaml  string
		flags map[string]string
		want  []string
	}{
		"none is named":            {"", nil, []string{"library"}},
		"a section":                {"tasks: {countries: {weight: 1}}", nil, []string{"countries"}},
		"an empty section":         {"tasks:\n  countries:\n", nil, []string{"countries"}},
		"a key of one":             {"", map[string]string{"tasks.countries.split_seed": "4"}, []string{"countries"}},
		"a list":                   {"tasks: [countries, library]", nil, []string{"countries", "library"}},
		"a list in a flag":         {"", map[string]string{"tasks": "countries, library"}, []string{"countries", "library"}},
		"a weight of 0 leaves out": {"tasks: [countries, library]", map[string]string{"tasks.library.weight": "0"}, []string{"countries"}},
		"a name with a type":       {"", map[string]string{"tasks.easy.type": "countries"}, []string{"easy"}},
	} {
		src := Sources{Flags: tc.flags}
		if tc.yaml != "" {
			src.Files = []string{writeFile(t, tc.yaml)}
		}
		cfg, _, err := Resolve(builtin.Doors(), src)
		require.NoError(t, err, name)
		require.NoError(t, cfg.Finish(), name)
		require.Equal(t, tc.want, cfg.Active(), name)
	}
}

// A task's preset stands below everything that is set; where several tasks set a key the greatest number holds.
func TestPresetsAreDefaults(t *testing.T) {
	t.Parallel()
	for tasks, want := range map[string][]any{
		"library": {192, int64(2000), 16}, "countries": {160, int64(1200), 32}, "countries,library": {192, int64(2000), 32},
	} {
		cfg, err := load(map[string]string{"tasks": tasks})
		require.NoError(t, err)
		require.Equal(t, want, []any{cfg.Model.MaxPositions, cfg.Trainer.ColdStart.Steps, cfg.Trainer.BatchGroups}, tasks)
		require.Empty(t, cfg.Unread(nil))
	}
	cfg, err := load(map[string]string{"tasks": "countries", "trainer.cold_start.steps": "7"})
	require.NoError(t, err)
	require.Equal(t, int64(7), cfg.Trainer.ColdStart.Steps)
	require.Equal(t, map[string]bool{"trainer.cold_start.steps": true, "tasks.countries.type": true}, Changed(cfg))
}

// Every fault of a section is told at once, each with its key and where it came from.
func TestFaultsOfSections(t *testing.T) {
	t.Parallel()
	_, err := load(map[string]string{
		"tasks.foo.weight": "1", "agents.bar.invalid": "end", "tools.search.k2": "1", "tasks.library.weigth": "2", "tasks.library.reward.type": "best",
		"tasks.library.reward.exact_match": "1",
	})
	for _, want := range []string{
		`tasks.foo.type (from --tasks.foo.weight): "foo": want api, archive, atlas, corpus, countries, dataset, http, jsonl, ledger, library or selfplay; without this key the section's name is its type`,
		`agents.bar.type (from --agents.bar.invalid): "bar": want chat, command, external, http, notebook, search, selfplay or team`,
		"tools.search.k2 (from --tools.search.k2): unknown key; did you mean tools.search.k1?",
		"tasks.library.weigth (from --tasks.library.weigth): unknown key; did you mean tasks.library.weight?",
		"tasks." + `library.reward.type (from --tasks.` + `library.reward.type): "best": want code, gsm8k, http, math, posted, qa, selfplay, team or weighted`,
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "exact_match", "nothing is said of the keys of a type that is not known")
	_, err = load(map[string]string{
		"tasks.library.weight": "10001", "tasks.library.agent": "none", "tasks.library.tools": "search,none", "tasks.library.limits.max_tokens": "1000",
		"tasks.library.limits.max_turns": "-2", "tasks.library.demo.usual_books": "0", "tasks.countries.weight": "-1", "tools.search.timeout": "0s",
	})
	for _, want := range []string{
		"tasks.library.weight: 10001: must be between 0 and 10000", "tasks.countries.weight: -1: must be between 0 and 10000",
		"tasks." + `library.agent: "none": no section of agents and no type of them has this name: want chat, command, external, http, notebook, search, selfplay or team`,
		"tasks." + `library.tools: "none": no section of tools and no type of them has this name: want ` + toolTypes,
		"tasks.library.limits.max_tokens: 1000: must not exceed model.max_positions, 192",
		"tasks.library.limits.max_turns: -2: must not be negative, but for -1",
		"tasks.library.demo.usual_books: 0: must be between 1 and 8", "tools.search.timeout: 0s: must be positive",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = load(map[string]string{"tasks.library.weight": "0"})
	require.ErrorContains(t, err, "tasks: no task has a weight: the run would train on nothing")
	_, _, err = Resolve(builtin.Doors(), Sources{Files: []string{writeFile(t, "tasks: {library: 3}\n")}})
	require.ErrorContains(t, err, "tasks.library (from ")
}

// The agents that are compared within their episode are named by the roles that the run's agents play.
func TestEpisodeAgentsAreRolesOfTheRunsAgents(t *testing.T) {
	t.Parallel()
	with := func(names string, more ...string) error {
		flags := map[string]string{"trainer.advantage.name": "hierarchical_grpo", "trainer.advantage.episode_agents": names, "tasks.selfplay.weight": "1"}
		for _, task := range more {
			flags["tasks."+task+".weight"] = "1"
		}
		_, err := load(flags)
		return err
	}
	require.NoError(t, with("solver"))
	require.NoError(t, with("solver,proposer", "countries"))
	const key = "trainer.advantage.episode_agents"
	require.ErrorContains(t, with("solver,judge"), key+`[1]: "judge": no agent of the run's tasks plays this role: want proposer, solver or verifier`)
	require.ErrorContains(t, with("solver-2"), key+`[0]: "solver-2": want the role of agents, which is their name without its number, such as solver`)
	_, err := load(map[string]string{"trainer.advantage.name": "hierarchical_grpo", "trainer.advantage.episode_agents": "solver", "tasks.countries.weight": "1"})
	require.ErrorContains(t, err, key+`[0]: "solver": no agent of the run's tasks plays roles`)
	_, err = load(map[string]string{key: "solver", "tasks.selfplay.weight": "1"})
	require.ErrorContains(t, err, key+" (from --"+key+"): advantage grpo has no such key: hierarchical_grpo has it")
}
