package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/export"
	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// archivedRun trains two steps that keep every message, and returns the folder of runs and that of the checkpoints.
func archivedRun(t *testing.T) (dir, checkpoints string) {
	t.Helper()
	dir = t.TempDir()
	config := filepath.Join(dir, "small.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
broker: {listen: "127.0.0.1:0"}
run: {dir: `+dir+`}
trainer:
  {steps: 2, eta: 0, batch_groups: 2, group_size: 4, minibatches: 1, cold_start: {steps: 10}, selection: {drop_zero_variance: false},
  archive: {required: true, samples: -1, messages: {bytes: 1073741824}}}
eval: {every: 0, test_questions: 1}
view: {listen: ""}
`), 0o600))
	weir(t, "up", "--config", config)
	return dir, filepath.Join(dir, "demo", runfolder.CheckpointsFolder)
}

// What the stream has purged and no kept batch has is in the archive: it is read, verified, and exported.
func TestWhatWasPurgedIsReadFromTheArchive(t *testing.T) {
	t.Parallel()
	dir, checkpoints := archivedRun(t)
	require.NoError(t, os.RemoveAll(filepath.Join(checkpoints, "batches")))
	records, err := checkpoint.ReadRecords(checkpoints)
	require.NoError(t, err)
	fates := map[string]runfolder.Verdict{}
	for i := range records {
		for v := range runfolder.Verdicts(&records[i]) {
			fates[v.ID] = v
		}
	}
	used := records[1].Groups[0].Members[0]
	out, err := runWeir(t, "", "trajectory", used.ID, "--run.dir", dir, "-o", "json")
	require.NoError(t, err)
	require.Contains(t, out, `"state":"trained"`)
	require.NotContains(t, out, `"rollout":null`)
	for id, v := range fates {
		if !v.Fate.Used() { // dropped with its group
			out, err := runWeir(t, "", "trajectory", id, "--run.dir", dir, "-o", "json")
			require.NoError(t, err)
			require.NotContains(t, out, `"rollout":null`, id)
		}
	}

	tables := filepath.Join(dir, "tables")
	out, err = runWeir(t, "", "records", "parquet", "--run.dir", dir, "--dir", tables)
	require.NoError(t, err)
	require.Contains(t, out, " trajectories, ")
	type row struct {
		ID   string `parquet:"id"`
		Fate string `parquet:"fate"`
		Step *int64 `parquet:"step,optional"`
	}
	rows, err := parquet.ReadFile[row](filepath.Join(tables, export.TrajectoriesFile))
	require.NoError(t, err)
	for _, r := range rows {
		v, known := fates[r.ID]
		require.Equal(t, known, r.Step != nil, r.ID)
		if known {
			require.Equal(t, v.Fate.String(), r.Fate)
			require.Equal(t, v.Step, *r.Step)
			delete(fates, r.ID)
		}
	}
	require.Empty(t, fates, "every trajectory of the record is in the table")
	type token struct {
		ID        string   `parquet:"id"`
		Mask      bool     `parquet:"action_mask"`
		Logprob   *float32 `parquet:"logprob,optional"`
		Advantage *float32 `parquet:"advantage,optional"`
	}
	tokens, err := parquet.ReadFile[token](filepath.Join(tables, export.TokensFile))
	require.NoError(t, err)
	sampled := 0
	for _, k := range tokens {
		require.Equal(t, k.Mask, k.Logprob != nil)
		if k.ID == used.ID {
			require.Equal(t, k.Mask, k.Advantage != nil, "its numbers were kept")
			if k.Mask {
				sampled++
			}
		}
	}
	require.NotZero(t, sampled)
	entries, err := os.ReadDir(tables)
	require.NoError(t, err)
	require.Len(t, entries, 3, "nothing half-written stays")
	t.Run("tables in Python", func(t *testing.T) { readTablesInPython(t, tables, len(rows), len(tokens)) })

	// One bit of a segment: the audit names it, and so do those who read it.
	found := auditedMessages(t, dir)
	require.NoError(t, found.Err(), "%v", found.Damage)
	require.NotZero(t, found.Messages)
	segments, err := filepath.Glob(filepath.Join(checkpoints, "archive", "messages", "*.seg"))
	require.NoError(t, err)
	require.NotEmpty(t, segments)
	for _, path := range segments {
		data := read(t, path)
		data[20] ^= 4
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	found = auditedMessages(t, dir)
	require.Error(t, found.Err())
	for _, path := range segments {
		require.Contains(t, found.Damage[len(found.Damage)-1].String()+found.Damage[0].String(), filepath.Base(path))
	}
	_, err = runWeir(t, "", "trajectory", used.ID, "--run.dir", dir)
	require.ErrorContains(t, err, ".seg")
	_, err = runWeir(t, "", "records", "parquet", "--run.dir", dir, "--dir", tables)
	require.ErrorContains(t, err, "damaged")
}

// auditedMessages is the answer of weir audit --verify, but for the batches that the test removed.
func auditedMessages(t *testing.T, dir string) *audit.Verified {
	t.Helper()
	// The error says that there is damage, which the answer has.
	out, _ := runWeir(t, "", "audit", "--verify", "--run.dir", dir, "-o", "json")
	found := new(audit.Verified)
	require.NoError(t, json.Unmarshal([]byte(out), found), out)
	var damage []audit.Damaged
	for _, d := range found.Damage {
		if !strings.Contains(d.File, "batches") {
			damage = append(damage, d)
		}
	}
	found.Damage = damage
	return found
}

const readTables = `
import sys
module, folder = sys.argv[1:]
def columns(name):
    path = folder + "/" + name + ".parquet"
    if module == "pandas":
        import pandas
        return {c: list(v) for c, v in pandas.read_parquet(path).items()}
    if module == "duckdb":
        import duckdb
        r = duckdb.sql(f"select * from '{path}'")
        return dict(zip(r.columns, map(list, zip(*r.fetchall()))))
    import pyarrow.parquet
    return pyarrow.parquet.read_table(path).to_pydict()
t, u, k = columns("trajectories"), columns("turns"), columns("tokens")
assert all(type(x) is str for x in t["id"]) and all(x is not None for x in t["reward"])
assert t["finished_at"][0] >= t["started_at"][0]
assert len(u["calls"]) == len(u["id"])
sampled = sum(1 for m in k["action_mask"] if m)
assert sampled == sum(t["sampled"]), (sampled, sum(t["sampled"]))
print(len(t["id"]), len(k["id"]))
`

// readTablesInPython reads the tables with each of the published readers that this machine has.
func readTablesInPython(t *testing.T, tables string, trajectories, tokens int) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "read.py")
	require.NoError(t, os.WriteFile(program, []byte(readTables), 0o600))
	for _, module := range []string{"pyarrow", "pandas", "duckdb"} {
		t.Run(module, func(t *testing.T) {
			out := realpython.Run(t, realpython.Interpreter(t, module), program, module, tables)
			var haveTrajectories, haveTokens int
			_, err := fmt.Sscan(out, &haveTrajectories, &haveTokens)
			require.NoError(t, err)
			require.Equal(t, trajectories, haveTrajectories)
			require.Equal(t, tokens, haveTokens)
		})
	}
}
