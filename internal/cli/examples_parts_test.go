package cli

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers/data"
	"github.com/weir-rl/weir/producers/tasks/dataset"
)

// uses are the types of parts that configurations use: those of the tasks that a run of theirs trains on.
type uses struct {
	tasks, agents, tools, rewards, engines map[string]string
	// schemas and endings are of their data files.
	schemas, endings map[string]string
}

// example takes in what one uses.
func (u uses) example(t *testing.T, path string) {
	t.Helper()
	cfg, _, err := config.Resolve(builtin.Doors(), config.Sources{Files: []string{path}})
	require.NoError(t, err, path)
	require.NoError(t, cfg.Finish(), path)
	u.engines[cfg.Model.Engine] = path
	for _, name := range cfg.Active() {
		section := cfg.Tasks[name]
		u.tasks[section.Type], u.rewards[section.Reward.Type] = path, path
		if section.Agent != "" {
			u.agents[cfg.Agents[section.Agent].Type] = path
		}
		for _, tool := range section.Tools {
			u.tools[cfg.Tools[tool].Type] = path
		}
		own, ok := section.Own.(*dataset.Config)
		if !ok {
			continue
		}
		for _, file := range own.Files {
			if isMadeByScript(t, path, file) {
				continue
			}
			file = filepath.Join(root, file)
			held, _, err := data.Mapping{}.Describe(t.Context(), []string{file}, nil, nil)
			require.NoError(t, err, file)
			require.Zero(t, held.Faulty, "%s: %v", file, held.Faults)
			for schema := range held.Schemas {
				u.schemas[schema] = file
			}
			u.endings[filepath.Ext(file)] = file
		}
	}
}

// isMadeByScript reports whether a script of the example writes the file, which is then not in the tree.
func isMadeByScript(t *testing.T, example, file string) bool {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(filepath.Dir(example), "make_*.py"))
	require.NoError(t, err)
	for _, script := range scripts {
		if strings.Contains(string(read(t, script)), script[len(root)+1:]+" "+file) {
			return true
		}
	}
	return false
}

// Whatever part the program brings, and whatever schema of data it reads, a user finds an example that trains with it.
func TestEveryPartHasAnExample(t *testing.T) {
	t.Parallel()
	u := uses{
		tasks: map[string]string{}, agents: map[string]string{}, tools: map[string]string{}, rewards: map[string]string{}, engines: map[string]string{},
		schemas: map[string]string{}, endings: map[string]string{},
	}
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "examples"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" && filepath.Base(path) != "compare.yaml" { // a comparison is no run
			u.example(t, path)
		}
		return err
	}))
	doors := builtin.Doors()
	for kind, c := range map[string]struct {
		want []string
		used map[string]string
	}{
		"task":             {parts.Names(doors.Tasks), u.tasks},
		"agent":            {parts.Names(doors.Agents), u.agents},
		"tool":             {parts.Names(doors.Tools), u.tools},
		"reward":           {parts.Names(doors.Rewards), u.rewards},
		"engine":           {doors.EngineNames(), u.engines},
		"schema of data":   {data.Schemas()[1:], u.schemas}, // the first finds out which of the others a row has
		"ending of a file": {[]string{".json", ".jsonl", ".parquet"}, u.endings},
	} {
		require.NotEmpty(t, c.want, kind)
		for _, name := range c.want {
			if c.used[name] == "" {
				t.Errorf("%s %s: no configuration under examples/ trains with it", kind, name)
			}
		}
	}
}
