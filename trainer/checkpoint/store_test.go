package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
)

var model = gpu.Config{
	ModelType: "llama", VocabSize: 8, HiddenSize: 4, IntermediateSize: 4, NumLayers: 1, NumHeads: 1, NumKVHeads: 1,
	RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 16, DType: "float32",
}

func tensors(step int64, suffix string) []gpu.Tensor {
	var out []gpu.Tensor
	for i, t := range []struct {
		name  string
		shape []int
	}{
		{"model.embed_tokens.weight", []int{8, 4}},
		{"model.layers.0.input_layernorm.weight", []int{4}},
		{"model.layers.0.self_attn.q_proj.weight", []int{4, 4}},
		{"model.layers.0.self_attn.k_proj.weight", []int{4, 4}},
		{"model.layers.0.self_attn.v_proj.weight", []int{4, 4}},
		{"model.layers.0.self_attn.o_proj.weight", []int{4, 4}},
		{"model.layers.0.post_attention_layernorm.weight", []int{4}},
		{"model.layers.0.mlp.gate_proj.weight", []int{4, 4}},
		{"model.layers.0.mlp.up_proj.weight", []int{4, 4}},
		{"model.layers.0.mlp.down_proj.weight", []int{4, 4}},
		{"model.norm.weight", []int{4}},
	} {
		n := 1
		for _, d := range t.shape {
			n *= d
		}
		data := make([]float32, n)
		for k := range data {
			data[k] = float32(step) + float32(i)/16 + float32(k)/1024
		}
		out = append(out, gpu.Tensor{Name: t.name + suffix, Shape: t.shape, Data: data})
	}
	return out
}

// network is a model as it is in memory.
type network struct {
	config  gpu.Config
	tensors []gpu.Tensor
	moments []gpu.Tensor
	steps   int64
}

func (n *network) Config() gpu.Config { return n.config }

func (n *network) Export(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	return hf.Export(ctx, dir, n.config, n.tensors, o)
}

func (n *network) Import(_ context.Context, dir string) error {
	m, err := hf.Load(dir)
	if err == nil {
		n.config, n.tensors = m.Config, m.Weights.Tensors
	}
	return err
}

func (n *network) SaveOptimizer(ctx context.Context, dir string) (int64, error) {
	_, err := safetensors.WriteFolder(ctx, dir, gpu.OptimizerFile, n.moments, gpu.ExportOptions{})
	return n.steps, err
}

// read is a network as a checkpoint keeps it.
func read(t *testing.T, dir string, steps int64) *network {
	t.Helper()
	n := &network{steps: steps}
	require.NoError(t, n.Import(t.Context(), dir))
	moments, err := safetensors.ReadFile(filepath.Join(dir, gpu.OptimizerFile))
	require.NoError(t, err)
	n.moments = moments.Tensors
	return n
}

// equal compares all that a checkpoint keeps.
func equal(t *testing.T, want, got *network) {
	t.Helper()
	require.Equal(t, want.tensors, got.tensors)
	require.Equal(t, want.moments, got.moments)
	require.Equal(t, want.steps, got.steps)
	require.Equal(t, want.config.ValueHead, got.config.ValueHead)
}

func sample(step int64) *Checkpoint {
	created := time.Unix(100, 5).UTC()
	c := &Checkpoint{
		Policy: &network{model, tensors(step, ""), append(tensors(step, ".m"), tensors(step, ".v")...), 4 * step},
		State: State{
			Run: "r", Step: step, Random: []byte{1, 2, byte(step)}, Eta: 3, Depth: -1, Stream: "S", Created: created,
			Ledger: batch.Ledger{Low: uint64(10 * step), Above: []uint64{uint64(10*step) + 2}},
			Issue: Issue{NextCursor: uint64(step) + 2, NextIndex: 9, Open: []OpenGroup{{Index: 8, Ticket: schemas.Ticket{
				Run: "r", ID: batch.TicketID(uint64(step)+1, 0, 0), Group: batch.GroupID(uint64(step)+1, 0), Cursor: uint64(step) + 1, GroupSize: 2,
			}}}},
		},
		Record: Record{Step: step, Stream: "S", Created: created, NextCursor: uint64(step) + 2, Open: []string{batch.GroupID(uint64(step)+1, 0)}},
	}
	if step > 2 {
		critic := model
		critic.ValueHead = true
		head := gpu.Tensor{Name: gpu.ValueHeadTensor, Shape: []int{1, 4}, Data: []float32{1, 2, 3, float32(step)}}
		c.Critic = &network{critic, append(tensors(step+50, ""), head), append(tensors(step+50, ".m"), tensors(step+50, ".v")...), step + 2}
	}
	if step > 0 {
		c.Record.Groups = []RecordGroup{{Group: batch.GroupID(uint64(step), 0), Members: []RecordMember{{ID: batch.TicketID(uint64(step), 0, 0), Sequence: uint64(10 * step), Reward: 1}}}}
	}
	return c
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, Keep: 2, Messages: 1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func save(t *testing.T, s *Store, steps ...int64) {
	t.Helper()
	for _, step := range steps {
		require.NoError(t, s.Save(t.Context(), sample(step)))
	}
}

func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	c, damage, err := s.Load()
	require.NoError(t, err)
	require.Empty(t, damage)
	require.Nil(t, c)

	save(t, s, 0, 1, 2, 3)
	require.NoError(t, s.Close())
	s = open(t, dir)
	c, damage, err = s.Load()
	require.NoError(t, err)
	require.Empty(t, damage)
	want := sample(3)
	want.State.Format, want.State.OptimizerSteps, want.State.CriticOptimizerSteps = Format, 12, 5
	records, err := ReadRecords(dir)
	require.NoError(t, err)
	require.Len(t, records, 4, "records outlive checkpoints")
	require.Equal(t, records[3], c.Record)
	want.State.Records, want.Record.Chain = c.State.Records, c.Record.Chain
	require.Equal(t, records[2].Chain, c.State.Records.Chain)
	require.Equal(t, want.State, c.State)
	// The record has the hashes of the files of tensors, which the manifest has too.
	require.Len(t, c.Record.Result.Files, 5)
	for name, hash := range c.Record.Result.Files {
		data, err := os.ReadFile(filepath.Join(c.Dir, name))
		require.NoError(t, err)
		require.Equal(t, schemas.ContentHash(data), hash, name)
	}
	want.Record.Result = c.Record.Result
	require.Equal(t, want.Record, c.Record)
	require.Equal(t, s.Path(3), c.Dir)
	equal(t, want.Policy.(*network), read(t, c.Dir, c.State.OptimizerSteps))
	equal(t, want.Critic.(*network), read(t, c.CriticDir, c.State.CriticOptimizerSteps))
	require.FileExists(t, filepath.Join(c.CriticDir, gpu.ValueHeadFile))
	bare, err := Read(s.Path(2), 2)
	require.NoError(t, err)
	require.Empty(t, bare.CriticDir)

	steps, err := Steps(dir)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 2}, steps)
	require.EqualValues(t, 20, s.SafePurge("S", want.State.Created, 0))
	require.Zero(t, s.SafePurge("S", want.State.Created.Add(1), 0), "of another stream nothing is known")
}

func TestEveryKeepsCheckpointsForGood(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{Dir: t.TempDir(), Keep: 1, Every: 3})
	require.NoError(t, err)
	defer s.Close()
	save(t, s, 0, 1, 2, 3, 4, 5, 6, 7)
	steps, err := Steps(s.Dir())
	require.NoError(t, err)
	require.Equal(t, []int64{7, 6, 3, 0}, steps)
	require.EqualValues(t, 70, s.SafePurge("S", time.Unix(100, 5), 0))
}

// Damaged checkpoints ahead of the run counted among the newest, so that the checkpoint saved last was removed at once.
func TestPassedOverCheckpointsTakeNoPlaceOfTheNewest(t *testing.T) {
	t.Parallel()
	config := Config{Dir: t.TempDir(), Keep: 1, Every: 2}
	s, err := Open(config)
	require.NoError(t, err)
	save(t, s, 0, 1, 2, 3, 4)
	require.NoError(t, os.Truncate(filepath.Join(s.Path(4), "model.safetensors"), 1))
	require.NoError(t, s.Close())
	s, err = Open(config)
	require.NoError(t, err)
	defer s.Close()
	for want := int64(2); want <= 3; want++ {
		c, damage, err := s.Load()
		require.NoError(t, err)
		require.Len(t, damage, 1)
		require.Equal(t, want, c.State.Step)
		save(t, s, want+1)
	}
	steps, err := Steps(s.Dir())
	require.NoError(t, err)
	require.Equal(t, []int64{4, 2, 0}, steps)
}

func TestDamagedCheckpointsAreNamedAndPassedOver(t *testing.T) {
	t.Parallel()
	edit := func(file string, change func([]byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, file)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, change(data), 0o644))
		}
	}
	cut := func(b []byte) []byte { return b[:len(b)/2] }
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	remove := func(file string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, file))) }
	}
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		file  string
		want  string
		have  string
	}{
		{"weights cut short", edit("model.safetensors", cut), "model.safetensors", "bytes", "bytes"},
		{"a bit of the weights", edit("model.safetensors", flip), "model.safetensors", "SHA-256", "SHA-256"},
		{"weights gone", remove("model.safetensors"), "model.safetensors", "bytes", "no such file"},
		{"moments cut short", edit("optimizer.safetensors", cut), "optimizer.safetensors", "bytes", "bytes"},
		{"a bit of the state", edit("state.json", flip), "state.json", "SHA-256", "SHA-256"},
		{"state empty", edit("state.json", func([]byte) []byte { return nil }), "state.json", "bytes", "0 bytes"},
		{"a bit of the configuration", edit("config.json", flip), "config.json", "SHA-256", "SHA-256"},
		{"record gone", remove("record.json"), "record.json", "bytes", "no such file"},
		{"a bit of the critic", edit("critic/model.safetensors", flip), "critic/model.safetensors", "SHA-256", "SHA-256"},
		{"the critic gone", func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "critic")))
		}, "critic/config.json", "bytes", "no such file"},
		{"a file elsewhere", edit("MANIFEST.json", func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"config.json"`, `"../config.json"`, 1))
		}), "MANIFEST.json", "within the folder", "../config.json"},
		// Defect F9: a manifest that lists nothing passed.
		{
			"a manifest without files", edit("MANIFEST.json", func([]byte) []byte { return []byte(`{"format": 1, "step": 3, "files": []}`) }),
			"MANIFEST.json", "state.json", "none",
		},
		{"a file that is not in the manifest", func(t *testing.T, dir string) {
			index := []byte(`{"weight_map": {"model.norm.weight": "other.safetensors"}}`)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o644))
		}, "model.safetensors.index.json", "an entry", "none"},
		{"manifest gone", remove("MANIFEST.json"), "MANIFEST.json", "a manifest", "no such file"},
		{"manifest cut short", edit("MANIFEST.json", cut), "MANIFEST.json", "JSON", "unexpected end"},
		{"manifest of another step", edit("MANIFEST.json", func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"step": 3`, `"step": 9`, 1))
		}), "MANIFEST.json", "step 3", "step 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			save(t, s, 2, 3)
			c.spoil(t, s.Path(3))
			got, damage, err := s.Load()
			require.NoError(t, err)
			require.EqualValues(t, 2, got.State.Step)
			require.Len(t, damage, 1)
			require.Equal(t, s.Path(3), damage[0].Dir)
			require.Equal(t, c.file, damage[0].File)
			require.Contains(t, damage[0].Want, c.want)
			require.Contains(t, damage[0].Have, c.have)
			records, err := ReadRecords(dir)
			require.NoError(t, err)
			require.EqualValues(t, 2, records[len(records)-1].Step, "the record goes back with the run")

			save(t, s, 3)
			got, damage, err = s.Load()
			require.NoError(t, err)
			require.Empty(t, damage)
			require.EqualValues(t, 3, got.State.Step)
		})
	}
}

func TestAnOlderCheckpointIsRefusedWhenTheStreamWasPurgedBeyondIt(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	save(t, s, 2, 3)
	created := time.Unix(100, 5)
	require.NoError(t, s.MarkPurged("S", created, 30))
	_, _, err := s.Load()
	require.NoError(t, err, "the newest needs nothing below 30")
	require.NoError(t, os.Remove(filepath.Join(s.Path(3), "state.json")))
	_, damage, err := s.Load()
	require.ErrorIs(t, err, ErrNotResumable)
	require.Len(t, damage, 1)
	for _, part := range []string{"from 21 on", "purged up to 30", s.Path(3), "state.json", "start a new run from the weights in " + s.Path(2)} {
		require.ErrorContains(t, err, part)
	}
	require.NoError(t, s.MarkPurged("S", created.Add(time.Second), 30))
	_, _, err = s.Load()
	require.NoError(t, err, "another stream was purged")
}

func TestNoUsableCheckpointIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	save(t, s, 0, 1)
	for _, step := range []int64{0, 1} {
		require.NoError(t, os.Truncate(filepath.Join(s.Path(step), "model.safetensors"), 10))
	}
	_, damage, err := s.Load()
	require.ErrorIs(t, err, ErrNotResumable)
	require.Len(t, damage, 2)
}

// Invariant: at every instant the newest complete checkpoint is the one saved last, or the one before it.
func TestInvariantWhatIsHalfWrittenIsNotACheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, 1)
	// A process killed while it writes leaves its temporary folder.
	require.NoError(t, os.Rename(s.Path(1), filepath.Join(dir, ".tmp-step_000002")))
	save(t, s, 1)
	require.NoError(t, s.Close())
	s = open(t, dir)
	c, damage, err := s.Load()
	require.NoError(t, err)
	require.Empty(t, damage)
	require.EqualValues(t, 1, c.State.Step)
	_, err = os.Stat(filepath.Join(dir, ".tmp-step_000002"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestTheRecordIsRepaired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, path string)
	}{
		{"last line cut short", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(path, info.Size()-9))
		}},
		{"last line missing", func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			lines := strings.SplitAfter(string(data), "\n")
			require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines[:3], "")), 0o644))
		}},
		{"lines of a future that was lost", func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			for step := int64(4); step < 6; step++ {
				line, err := json.Marshal(sample(step).Record)
				require.NoError(t, err)
				_, err = fmt.Fprintf(f, "%s\n", line)
				require.NoError(t, err)
			}
			require.NoError(t, f.Close())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			save(t, s, 0, 1, 2, 3)
			want, err := os.ReadFile(filepath.Join(dir, RecordFile))
			require.NoError(t, err)
			c.spoil(t, filepath.Join(dir, RecordFile))
			_, _, err = s.Load()
			require.NoError(t, err)
			records, err := os.ReadFile(filepath.Join(dir, RecordFile))
			require.NoError(t, err)
			require.Equal(t, string(want), string(records))
		})
	}
}

func TestARecordWithABadLineIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, RecordFile), []byte("{\"step\":0}\nnonsense\n{\"step\":2}\n"), 0o644))
	_, err := ReadRecords(dir)
	require.ErrorContains(t, err, "line 2")
}

func TestTheFolderIsHeldByOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	_, err := Open(Config{Dir: dir, Keep: 1})
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, dir)
	require.NoError(t, s.Close())
	open(t, dir)
}

// reference is the policy that a run at some step compares with.
func reference(t *testing.T, s *Store, step int64) ([]gpu.Tensor, error) {
	t.Helper()
	var into network
	err := s.Reference(t.Context(), step, sample(step).Policy, nil, &into)
	return into.tensors, err
}

func TestTheReferenceIsTheFirstPolicy(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	for _, step := range []int64{0, 7} {
		w, err := reference(t, s, step)
		require.NoError(t, err)
		require.Equal(t, tensors(0, ""), w)
	}
	_, err := reference(t, open(t, t.TempDir()), 7)
	require.ErrorContains(t, err, "began without a reference policy")
}

// Defect P18: a flipped bit of the reference was trained against.
func TestADamagedReferenceIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	_, err := reference(t, s, 0)
	require.NoError(t, err)
	path := filepath.Join(dir, "reference", "model.safetensors")
	flip := func() {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[len(data)-1] ^= 0x40
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	flip()
	_, err = reference(t, s, 7)
	var damage *Damage
	require.ErrorAs(t, err, &damage)
	require.Equal(t, "model.safetensors", damage.File)
	require.ErrorContains(t, err, "put the folder back from a copy")
	flip()
	w, err := reference(t, s, 7)
	require.NoError(t, err)
	require.Equal(t, tensors(0, ""), w)

	// One that was put there by hand is taken as it is at first, and held to that.
	require.NoError(t, os.Remove(filepath.Join(dir, "reference", "MANIFEST.json")))
	w, err = reference(t, s, 7)
	require.NoError(t, err)
	require.Equal(t, tensors(0, ""), w)
	flip()
	_, err = reference(t, s, 7)
	require.ErrorAs(t, err, &damage)
}

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
	err := Config{Every: -1, BatchBytes: -1}.Validate()
	for _, key := range []string{"dir", "keep", "every", "batch_bytes"} {
		require.ErrorContains(t, err, key)
	}
}

func TestRenewReplacesTheLastCheckpointAndLetsTheOlderOnesGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, 2, 3)
	created := time.Unix(100, 5)
	require.EqualValues(t, 20, s.SafePurge("S", created, 0))
	again := sample(3)
	again.State.Ledger = batch.Ledger{Low: 77}
	again.Record.NextCursor = 99
	require.NoError(t, s.Renew(t.Context(), again))
	require.EqualValues(t, 77, s.SafePurge("S", created, 0))
	records, err := ReadRecords(dir) // before Load, which would repair them
	require.NoError(t, err)
	require.Len(t, records, 2)
	require.EqualValues(t, 99, records[1].NextCursor)
	c, damage, err := s.Load()
	require.NoError(t, err)
	require.Empty(t, damage)
	require.EqualValues(t, 77, c.State.Ledger.Low)
}

func TestAFolderWhoseReplacementNeverCameIsPutBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, 2, 3)
	require.NoError(t, os.Rename(s.Path(3), filepath.Join(dir, ".old-step_000003")))
	require.NoError(t, s.Close())
	s = open(t, dir)
	c, _, err := s.Load()
	require.NoError(t, err)
	require.EqualValues(t, 3, c.State.Step)
}

func TestWhatIsPurgedStaysPurged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, 2, 3)
	created := time.Unix(100, 5)
	again := sample(3)
	again.State.Ledger = batch.Ledger{Low: 77}
	require.NoError(t, s.Renew(t.Context(), again))
	require.NoError(t, s.MarkPurged("S", created, 77))
	// A trainer that starts again knows the marks of both and purges up to the lower.
	require.NoError(t, s.MarkPurged("S", created, 20))
	require.NoError(t, os.Truncate(filepath.Join(s.Path(3), stateFile), 9))
	_, _, err := s.Load()
	require.ErrorIs(t, err, ErrNotResumable)
	require.ErrorContains(t, err, "purged up to 77")
	// Another stream has its own.
	require.NoError(t, s.MarkPurged("S", created.Add(1), 5))
	c, _, err := s.Load()
	require.NoError(t, err)
	require.EqualValues(t, 2, c.State.Step)
}

func TestABatchIsReadAgainAsItWasTrainedOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, Keep: 1, Messages: 1, Batches: 2})
	require.NoError(t, err)
	defer s.Close()
	want := pendingMessages()[:1]
	for step := int64(1); step < 5; step++ {
		c := sample(step)
		c.Batch = want
		require.NoError(t, s.Save(t.Context(), c))
	}
	records, err := ReadRecords(dir)
	require.NoError(t, err)
	for i, r := range records {
		got, err := ReadBatch(dir, &r)
		if i < 2 {
			require.ErrorIs(t, err, ErrNoBatch)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want[0].Sequence, got[0].Sequence)
		require.Equal(t, want[0].Trajectory.Segments, got[0].Trajectory.Segments)
	}
	path := BatchPath(dir, 4)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o644))
	_, err = ReadBatch(dir, &records[3])
	var damage *Damage
	require.ErrorAs(t, err, &damage)
	require.Equal(t, "step_000004.zst", damage.File)
}

// Defect F9: the kept batches grew without a bound.
func TestKeptBatchesStayWithinTheirBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	size := func(steps ...int64) (sum int64) {
		for _, step := range steps {
			info, err := os.Stat(BatchPath(dir, step))
			require.NoError(t, err)
			sum += info.Size()
		}
		return sum
	}
	open := func(bound int64) *Store {
		s, err := Open(Config{Dir: dir, Keep: 1, Messages: 1, Batches: -1, BatchBytes: bound})
		require.NoError(t, err)
		return s
	}
	keep := func(s *Store, steps ...int64) {
		for _, step := range steps {
			c := sample(step)
			c.Batch = pendingMessages()[:1]
			require.NoError(t, s.Save(t.Context(), c))
		}
	}
	s := open(0)
	keep(s, 1, 2, 3, 4, 5)
	require.NoError(t, s.Close())
	bound := size(3, 4, 5) // all are of one batch
	s = open(bound)
	keep(s, 6)
	require.LessOrEqual(t, size(4, 5, 6), bound)
	kept, err := listKept(dir)
	require.NoError(t, err)
	require.Len(t, kept, 3, "the oldest went, those of an earlier process too")
	require.NoError(t, s.Close())
	s = open(1)
	keep(s, 7)
	kept, err = listKept(dir)
	require.NoError(t, err)
	require.Equal(t, []keptFile{{7, size(7)}}, kept, "the newest stays")
	require.NoError(t, s.Close())
}

// Defect F9: with nothing damaged the refusal read "%!w(<nil>); restore the damaged checkpoint".
func TestARefusalWithoutDamageSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	save(t, s, 2)
	require.NoError(t, s.MarkPurged("S", time.Unix(100, 5), 30))
	_, damage, err := s.Load()
	require.ErrorIs(t, err, ErrNotResumable)
	require.Empty(t, damage)
	require.NotContains(t, err.Error(), "%!")
	require.NotContains(t, err.Error(), "damaged")
	require.ErrorContains(t, err, "put back the newer checkpoints that were here, or start a new run from the weights in "+s.Path(2))
}
