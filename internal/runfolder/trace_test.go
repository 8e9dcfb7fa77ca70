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

// tracedStep is a step that trained on a group of each prompt; noted has the record name the prompts.
func tracedStep(step int64, noted bool, prompts ...string) *checkpoint.Checkpoint {
	published := &checkpoint.Published{DType: "float32", Files: map[string]string{"model.safetensors": "version " + string('a'+rune(step-1)) + " of a long hash"}}
	c := &checkpoint.Checkpoint{State: checkpoint.State{Step: step, Run: "test", Light: true}, Record: checkpoint.Record{Step: step, Began: published}}
	for i, prompt := range prompts {
		cursor, half := uint64(10*step)+uint64(i), float32(0.5)
		g := checkpoint.RecordGroup{Group: batch.GroupID(cursor, 0), Size: 1, Members: []checkpoint.RecordMember{{
			ID: batch.TicketID(cursor, 0, 0), Sequence: cursor, Oldest: step - 2, Newest: step - 1, Reward: 1,
		}}}
		if noted {
			g.Task, g.Prompt, g.Members[0].Advantage = "count", prompt, &half
		}
		c.Record.Groups = append(c.Record.Groups, g)
		c.Batch = append(c.Batch, schemas.Delivery{
			Sequence: cursor, Trajectory: &schemas.Trajectory{ID: batch.TicketID(cursor, 0, 0), Group: g.Group, PromptID: prompt},
		})
	}
	return c
}

// A prompt is traced through lines that note prompts, and through lines that do not: by the archive, and by the kept batches.
func TestAPromptIsTracedToItsStepsAndTheirWeights(t *testing.T) {
	t.Parallel()
	const prompt = `what is "a" < b ?`
	cfg := checkpoint.DefaultConfig()
	cfg.Dir = t.TempDir()
	s, err := checkpoint.Open(cfg)
	require.NoError(t, err)
	for _, c := range []*checkpoint.Checkpoint{
		{State: checkpoint.State{Run: "test", Light: true}},
		tracedStep(1, false, "other", prompt), // in a kept batch
		tracedStep(2, false, prompt),          // in the archive alone
		tracedStep(3, false, prompt),          // nowhere any more
		tracedStep(4, true, "other", prompt, prompt+"s"),
		tracedStep(5, true, "other"),
		tracedStep(6, true, prompt),
	} {
		if c.State.Step == 5 {
			c.Record.Dropped = []checkpoint.RecordDrop{{Group: "g000099-a1", Task: "count", Prompt: prompt, Reason: schemas.ReasonZeroVariance}}
		}
		require.NoError(t, s.Save(t.Context(), c))
	}
	require.NoError(t, s.Close())
	entry, err := json.Marshal(archive.Entry{ID: batch.TicketID(20, 0, 0), Step: 2, Fate: archive.FateTrained, Prompt: archive.ClipPrompt(prompt)})
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(cfg.Dir, archive.Folder), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, archive.Folder, "000001.jsonl"), append(entry, '\n'), 0o644))
	require.NoError(t, os.Remove(checkpoint.BatchPath(cfg.Dir, 2)))
	require.NoError(t, os.Remove(checkpoint.BatchPath(cfg.Dir, 3)))

	trace := func(prompt string) *Trace {
		found, err := Open(Run{Name: "test", Checkpoints: cfg.Dir}).Trace(prompt, func(err error) { require.NoError(t, err) })
		require.NoError(t, err)
		return found
	}
	found := trace(prompt)
	require.Equal(t, []int64{3}, found.Unknown)
	var steps []int64
	for _, g := range found.Groups {
		require.Equal(t, prompt, g.Prompt)
		steps = append(steps, g.Step)
	}
	require.Equal(t, []int64{1, 2, 4, 5, 6}, steps)
	require.Equal(t, map[int64]string{0: "version a of", 1: "version b of", 2: "version c of", 3: "version d of", 4: "version e of", 5: "version f of"}, found.Weights)

	old, dropped, newest := found.Groups[0], found.Groups[3], found.Groups[4]
	require.Equal(t, "g000011-a0", old.Group)
	require.Nil(t, old.Members[0].Advantage)
	require.Equal(t, schemas.ReasonZeroVariance, dropped.Reason)
	require.Empty(t, dropped.Members)
	require.Equal(t, "count", newest.Task)
	require.InDelta(t, 0.5, *newest.Members[0].Advantage, 0)
	require.Equal(t, []int64{4, 5, 6}, []int64{newest.Members[0].Oldest, newest.Members[0].Newest, newest.Members[0].Step})
	require.Equal(t, FateTrained, newest.Members[0].Fate)

	require.Empty(t, trace("what").Groups)
	require.Len(t, trace("other").Groups, 3)
}

// A line that was changed is reported, and searched all the same.
func TestATraceReportsALineThatWasChanged(t *testing.T) {
	t.Parallel()
	cfg := checkpoint.DefaultConfig()
	cfg.Dir = t.TempDir()
	s, err := checkpoint.Open(cfg)
	require.NoError(t, err)
	for step := int64(1); step <= 3; step++ {
		require.NoError(t, s.Save(t.Context(), tracedStep(step, true, "p")))
	}
	require.NoError(t, s.Close())
	path := filepath.Join(cfg.Dir, checkpoint.RecordFile)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	at := len(text) / 2
	for text[at] != 'g' { // the second line's fields
		at++
	}
	text[at] = 'G'
	require.NoError(t, os.WriteFile(path, text, 0o644))
	faults := map[string]bool{}
	found, err := Open(Run{Name: "test", Checkpoints: cfg.Dir}).Trace("p", func(err error) { faults[err.Error()] = true })
	require.NoError(t, err)
	require.NotEmpty(t, faults)
	require.GreaterOrEqual(t, len(found.Groups), 2)
}
