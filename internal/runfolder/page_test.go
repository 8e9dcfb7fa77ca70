package runfolder

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// writeLines writes values as lines of JSON.
func writeLines[T any](t *testing.T, path string, values ...T) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	var text []byte
	for _, v := range values {
		line, err := json.Marshal(v)
		require.NoError(t, err)
		text = append(append(text, line...), '\n')
	}
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// folderOfGroups has a step with a group of mixed rewards, one that is solved, one that is unsolved, and one of which nothing came.
func folderOfGroups(t *testing.T) *Folder {
	t.Helper()
	dir := t.TempDir()
	checkpoints := filepath.Join(dir, CheckpointsFolder)
	r := checkpoint.Record{Step: 1}
	r.Groups = []checkpoint.RecordGroup{{Group: batch.GroupID(0, 0), Size: 2, Members: []checkpoint.RecordMember{
		{ID: batch.TicketID(0, 0, 0), Sequence: 1, Reward: 1}, {ID: batch.TicketID(0, 0, 1), Sequence: 2, Reward: 0},
	}}}
	var entries []archive.Entry
	entry := func(cursor uint64, sample int, fate string, reward float64, reason schemas.Reason) {
		sequence := 1 + 2*cursor + uint64(sample)
		entries = append(entries, archive.Entry{
			ID: batch.TicketID(cursor, 0, sample), Sequence: sequence, Step: 1, Fate: fate, Reason: reason, Question: "how far ?", Accepted: "356",
			Answer: "12", Reward: reward, Sampled: 10 * (1 + sample), Started: 1000, Finished: 3000, Ended: 4000,
		})
		if fate == archive.FateRejected {
			r.Rejected = append(r.Rejected, checkpoint.RecordRejection{ID: batch.TicketID(cursor, 0, sample), Sequence: sequence, Reason: reason})
		}
	}
	entry(0, 0, archive.FateTrained, 1, "")
	entry(0, 1, archive.FateTrained, 0, "")
	for cursor, reward := range map[uint64]float64{1: 1, 2: 0.1} {
		entry(cursor, 0, archive.FateRejected, reward, schemas.ReasonZeroVariance)
		entry(cursor, 1, archive.FateRejected, reward, schemas.ReasonZeroVariance)
	}
	writeLines(t, filepath.Join(checkpoints, checkpoint.RecordFile), r)
	writeLines(t, filepath.Join(checkpoints, archive.Folder, "000001.jsonl"), entries...)
	f := Open(Run{Name: "demo", Dir: dir})
	require.NoError(t, f.Refresh())
	return f
}

func TestAGroupIsARow(t *testing.T) {
	t.Parallel()
	f := folderOfGroups(t)
	page := f.Groups(Query{Step: -1, Limit: 10, Sort: "-reward"})
	require.Equal(t, 3, page.Total)
	kinds := map[string]string{}
	for _, g := range page.Rows {
		kinds[g.ID] = g.Kind
		require.Len(t, g.Members, 2)
		require.Equal(t, "how far ?", g.Facts.Question)
		require.Equal(t, "356", g.Facts.Accepted)
		require.Equal(t, "12", g.Members[1].Answer)
	}
	require.Equal(t, map[string]string{batch.GroupID(0, 0): GroupMixed, batch.GroupID(1, 0): GroupSolved, batch.GroupID(2, 0): GroupUnsolved}, kinds)
	require.InDelta(t, 1, page.Rows[0].Mean, 1e-6, "the highest reward first")
	require.Equal(t, "trained", page.Rows[1].Fate)

	dropped := f.Groups(Query{Step: -1, Fate: "dropped", Limit: 1})
	require.Equal(t, 2, dropped.Total)
	require.Len(t, dropped.Rows, 1)
	require.Zero(t, f.Groups(Query{Step: 7, Limit: 10}).Total)
	require.Empty(t, f.Groups(Query{Step: -1, Offset: 9, Limit: 10}).Rows)
}

func TestDistributionsAreByStep(t *testing.T) {
	t.Parallel()
	d := folderOfGroups(t).Distributions(100)
	require.Equal(t, []int64{1}, d.Step)
	require.Equal(t, [][]float64{{10, 20, 20, 20}}, d.Sampled)
	require.Equal(t, [][]float64{{2, 2, 2, 2}}, d.Seconds)
	require.Equal(t, [][]float64{{0, 0, 0, 0}}, d.Staleness)
	require.Equal(t, [][]int{{1}, {1}, {1}}, [][]int{d.Solved, d.Unsolved, d.Mixed})
	require.Equal(t, []int64{1, 3, 5}, thinSteps([]int64{1, 2, 3, 4, 5}, 3))
	empty := Open(Run{Dir: t.TempDir()}).Distributions(10)
	require.Empty(t, empty.Step)
}

func TestSettingsHideSecrets(t *testing.T) {
	t.Parallel()
	f := Open(Run{Dir: t.TempDir()})
	require.Empty(t, f.Settings())
	text := "run: {name: demo}\ntrainer: {eta: 4, loss: {name: ppo}}\ntools: {find: {service: {token: abc, token_env: NAME}, env: [A=b]}}\ninference: {openai: {api_key: k, stop: []}}\n"
	require.NoError(t, os.WriteFile(filepath.Join(f.Dir, ConfigFile), []byte(text), 0o600))
	require.Equal(t, []Setting{
		{"inference.openai.api_key", "(hidden)"},
		{"inference.openai.stop", "[]"},
		{"run.name", "demo"},
		{"tools.find.env", "(hidden)"},
		{"tools.find.service.token", "(hidden)"},
		{"tools.find.service.token_env", "NAME"},
		{"trainer.eta", "4"},
		{"trainer.loss.name", "ppo"},
	}, f.Settings())
}

func TestTheLogIsReadFromItsEnd(t *testing.T) {
	t.Parallel()
	f := Open(Run{Dir: t.TempDir()})
	lines, err := f.Log(10, false)
	require.NoError(t, err)
	require.Empty(t, lines)
	text := `{"time":"1","level":"INFO","msg":"begun","run":"demo","part":"broker"}
no json
{"time":"2","level":"WARN","msg":"failed","why":"503"}
{"time":"3","level":"WARN","msg":"failed","why":"503"}
{"time":"4","level":"DEBUG","msg":"noise"}
{"time":"5","level":"INFO","msg":"cut short`
	require.NoError(t, os.WriteFile(filepath.Join(f.Dir, LogFile), []byte(text), 0o600))
	lines, err = f.Log(10, false)
	require.NoError(t, err)
	require.Equal(t, []LogLine{{"3", "WARN", "failed", "why=503", 2}, {"1", "INFO", "begun", "part=broker", 1}}, lines)
	lines, err = f.Log(1, true)
	require.NoError(t, err)
	require.Len(t, lines, 1)
}
