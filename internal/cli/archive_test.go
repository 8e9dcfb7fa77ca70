package cli

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/export"
	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/internal/rescore"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// archivedRun trains two steps that keep every message, with further keys of the archive's messages. It returns the folder of runs and that
// of the checkpoints.
func archivedRun(t *testing.T, further string) (dir, checkpoints string) {
	t.Helper()
	dir = t.TempDir()
	config := filepath.Join(dir, "small.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
broker: {listen: "127.0.0.1:0"}
run: {dir: `+dir+`}
trainer:
  {steps: 2, eta: 0, batch_groups: 2, group_size: 4, minibatches: 1, cold_start: {steps: 10}, selection: {drop_zero_variance: false},
  archive: {required: true, samples: -1, messages: {bytes: 1073741824`+further+`}}}
tasks: {library: {reward: {length: 0.5, format: 0.25}}}
eval: {every: 0, test_questions: 1}
view: {listen: ""}
`), 0o600))
	weir(t, "up", "--config", config)
	return dir, filepath.Join(dir, "demo", runfolder.CheckpointsFolder)
}

// What the stream has purged and no kept batch has is in the archive: it is read, verified, and exported.
func TestWhatWasPurgedIsReadFromTheArchive(t *testing.T) {
	t.Parallel()
	dir, checkpoints := archivedRun(t, "")
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
	t.Run("trajectories are scored again", func(t *testing.T) { rescoreArchive(t, dir, len(rows)) })
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

// rescoreArchive scores every trajectory of an archived run again: by the run's own reward, by another, and behind a cut row.
func rescoreArchive(t *testing.T, dir string, trajectories int) {
	t.Helper()
	readRows := func(file string) map[string]rescore.Row {
		out := map[string]rescore.Row{}
		for row, err := range rescore.Read(file) {
			require.NoError(t, err)
			out[fmt.Sprint(row.ID, row.Sequence)] = *row
		}
		return out
	}
	file := filepath.Join(dir, "demo", "rescored.jsonl")
	out, err := runWeir(t, "", "rescore", "--run.dir", dir)
	require.NoError(t, err)
	require.Contains(t, out, fmt.Sprintf("%d rows in %s, %d of them new", trajectories, file, trajectories))
	same := readRows(file)
	require.Len(t, same, trajectories)
	different := map[float64]bool{}
	for _, row := range same {
		different[row.Was] = true
		require.Empty(t, row.Error)
		require.Equal(t, row.Was, *row.Reward, row.ID)
		require.Equal(t, row.WasRewards, row.Rewards, row.ID)
		require.NotNil(t, row.Step, row.ID)
	}

	require.Greater(t, len(different), 1, "the rewards are not all equal")
	_, err = runWeir(t, "", "rescore", "--run.dir", dir, "--tasks.library.reward.length", "2")
	require.ErrorContains(t, err, file+" was begun with tasks.library.reward.length 0.5, and it is 2 now")
	other := filepath.Join(dir, "other.jsonl")
	again := []string{"rescore", "--run.dir", dir, "--tasks.library.reward.length", "2", "--out", other, "-o", "json"}
	_, err = runWeir(t, "", again...)
	require.NoError(t, err)
	rows := readRows(other)
	for name, row := range rows {
		require.InDelta(t, row.Was+1.5*row.Rewards["length"], *row.Reward, 1e-9, name)
	}
	whole := read(t, other)
	require.NoError(t, os.WriteFile(other, whole[:len(whole)-20], 0o644))
	out, err = runWeir(t, "", again...)
	require.NoError(t, err)
	require.Contains(t, out, `"added":1,`)
	require.Equal(t, string(whole), string(read(t, other)), "a cut row is written again, and no other")

	_, err = runWeir(t, "", "rescore", "--run.dir", dir, "--tasks.library.reward.type", "posted", "--out", filepath.Join(dir, "posted.jsonl"))
	require.ErrorContains(t, err, "tasks.library.reward reads the reward that the agent posted, which is not stored with a trajectory")
	require.NoFileExists(t, filepath.Join(dir, "posted.jsonl"))
}

// Messages that are in a bucket are read from it by every command, also on a disk that has nothing of them.
func TestMessagesInABucketAreReadByEveryCommand(t *testing.T) {
	for key, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret-that-is-in-no-text",
		"AWS_SESSION_TOKEN": "", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(key, value)
	}
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("kept"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	defer server.Close()
	dir, checkpoints := archivedRun(t, `, dir: "s3://kept/runs", s3: {endpoint: "`+server.URL+`"}`)
	folder := filepath.Join(checkpoints, "archive", "messages")
	waiting, err := filepath.Glob(filepath.Join(folder, "*.seg"))
	require.NoError(t, err)
	require.Empty(t, waiting, "the bucket has them")
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.RemoveAll(filepath.Join(checkpoints, "batches")))
	records, err := checkpoint.ReadRecords(checkpoints)
	require.NoError(t, err)
	used := records[1].Groups[0].Members[0]
	out, err := runWeir(t, "", "trajectory", used.ID, "--run.dir", dir, "-o", "json")
	require.NoError(t, err)
	require.NotContains(t, out, `"rollout":null`)
	found := auditedMessages(t, dir)
	require.NoError(t, found.Err(), "%v", found.Damage)
	require.NotZero(t, found.Messages)
	tables := filepath.Join(dir, "tables")
	_, err = runWeir(t, "", "records", "parquet", "--run.dir", dir, "--dir", tables)
	require.NoError(t, err)
	type row struct {
		ID string `parquet:"id"`
	}
	rows, err := parquet.ReadFile[row](filepath.Join(tables, export.TrajectoriesFile))
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	page := runfolder.Open(runfolder.Run{Name: "demo", Dir: filepath.Join(dir, "demo"), Messages: messagesOf(t, dir)})
	defer page.Close()
	read, err := page.FromMessages(used.ID, used.Sequence)
	require.NoError(t, err)
	require.Equal(t, used.ID, read.ID)

	t.Run("a run trains on the bucket alone", func(t *testing.T) { trainOnBucket(t, dir, checkpoints, server.URL) })

	server.Close()
	for _, command := range [][]string{{"trajectory", used.ID}, {"audit", "--verify"}} {
		_, err := runWeir(t, "", append(command, "--run.dir", dir)...)
		require.ErrorContains(t, err, "s3://kept/runs/demo/", command)
		require.NotContains(t, err.Error(), "secret-that-is-in-no-text")
	}
	_, err = runWeir(t, "", "records", "parquet", "--run.dir", dir, "--dir", tables)
	require.ErrorContains(t, err, "lack what they held")
}

// messagesOf are the messages of the run demo as its configuration names them.
func messagesOf(t *testing.T, dir string) messages.Segments {
	t.Helper()
	cfg, _, err := config.Resolve(builtin.Doors(), config.Sources{Written: filepath.Join(dir, "demo", assembly.ConfigFile)})
	require.NoError(t, err)
	return assembly.KeptMessages(cfg)
}

// A role of its own keeps what every command reads.
func TestARoleKeepsWhatEveryCommandReads(t *testing.T) {
	t.Parallel()
	dir, checkpoints := archivedRun(t, ", by: role")
	require.NoError(t, os.RemoveAll(filepath.Join(checkpoints, "batches")))
	records, err := checkpoint.ReadRecords(checkpoints)
	require.NoError(t, err)
	for i := range records {
		for v := range runfolder.Verdicts(&records[i]) {
			out, err := runWeir(t, "", "trajectory", v.ID, "--run.dir", dir, "-o", "json")
			require.NoError(t, err)
			require.NotContains(t, out, `"rollout":null`, v.ID)
		}
	}
	found := auditedMessages(t, dir)
	require.NoError(t, found.Err(), "%v", found.Damage)
	require.NotZero(t, found.Messages)
	_, err = runWeir(t, "", "records", "parquet", "--run.dir", dir, "--dir", filepath.Join(dir, "tables"))
	require.NoError(t, err)
	out, err := runWeir(t, "", "rescore", "--run.dir", dir)
	require.NoError(t, err)
	require.Contains(t, out, "rows in")
	out, err = runWeir(t, "", "status", "--run.dir", dir)
	require.NoError(t, err)
	require.Contains(t, out, "kept up to ")
	_, err = runWeir(t, "", "archive", "--run.dir", dir)
	require.ErrorContains(t, err, "trainer.archive.messages.bytes is 0")
	_, err = runWeir(t, "", "archive", "--run.dir", dir, "--trainer.archive.messages.bytes", "1073741824")
	require.ErrorContains(t, err, "trainer.archive.messages.by is trainer")
}
