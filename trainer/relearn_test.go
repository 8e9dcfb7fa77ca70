package trainer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/relearn"
)

// nativeRun is a run whose engines are native ones.
type nativeRun struct {
	cfg  Config
	lora native.LoRA
	w    *world
	// wrap is put around engines, unless nil.
	wrap func(gpu.Engine) gpu.Engine
}

// newEngine makes a policy; other seeds start with other weights.
func (r *nativeRun) newEngine(t *testing.T, seed uint64) gpu.Engine {
	t.Helper()
	e, err := native.New(gpu.Config{
		ModelType: "llama", VocabSize: 8, HiddenSize: 8, IntermediateSize: 12, NumLayers: 1, NumHeads: 2, NumKVHeads: 1,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 32, ValueHead: r.cfg.Critic.Network == learner.CriticHead,
	}, native.Options{Seed: seed, Threads: 1, LoRA: r.lora})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func newWhole(c gpu.Config) (gpu.Engine, error) {
	return native.New(c, native.Options{Seed: 9, Threads: 1})
}

// train trains, from where the run stands, up to the configured step.
func (r *nativeRun) train(t *testing.T, settings map[string]string) {
	t.Helper()
	require.NoError(t, Run(t.Context(), r.cfg, Deps{
		Engine: r.newEngine(t, 3), Stream: r.w, Prompts: prompts{8}, NewEngine: newWhole, Settings: settings,
	}))
}

// again learns the steps of a plan again, on a fresh engine, and compares each with the record.
func (r *nativeRun) again(t *testing.T, p *relearn.Plan) (out []*relearn.Outcome) {
	t.Helper()
	seed := uint64(11) // the checkpoint has everything but the weights that adapters are added to
	if r.lora.Rank > 0 {
		seed = 3
	}
	deps := learner.Deps{Engine: r.newEngine(t, seed), NewEngine: newWhole, Scratch: t.TempDir() + "/scratch"}
	l, err := relearn.Open(t.Context(), r.cfg.Checkpoint.Dir, r.cfg.Config, deps, p.From)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	for i, record := range p.Records {
		numbers, err := l.Learn(t.Context(), r.cfg.Checkpoint.Dir, record)
		require.NoError(t, err)
		c, err := l.Save(t.Context(), t.TempDir()+"/saved")
		require.NoError(t, err)
		now := checkpoint.Result{Files: c.Record.Result.Files, Numbers: numbers}
		o, err := l.CompareStep(t.Context(), record, now, p.Published(i), t.TempDir()+"/published")
		require.NoError(t, err)
		out = append(out, o)
	}
	return out
}

// Invariant: a step learnt again from a checkpoint before it and the batches since is equal to the bit.
func TestInvariantEveryStepIsLearntAgainToTheBit(t *testing.T) {
	t.Parallel()
	asynchronous := func(r *nativeRun) { r.cfg.Eta, r.cfg.Depth, r.w.lag, r.w.noise = 2, -1, 2, true }
	for name, change := range map[string]func(*nativeRun){
		"grpo": func(*nativeRun) {},
		"grpo, epochs and a schedule": func(r *nativeRun) {
			r.cfg.Epochs, r.cfg.Optimizer.Schedule, r.cfg.Optimizer.WarmupSteps, r.cfg.Optimizer.WeightDecay = 2, "cosine", 2, 0.1
		},
		"ppo, a value head":             func(r *nativeRun) { critical(&r.cfg, learner.CriticHead) },
		"ppo, a critic of its own":      func(r *nativeRun) { critical(&r.cfg, learner.CriticOwn) },
		"ppo, asynchronous":             func(r *nativeRun) { critical(&r.cfg, learner.CriticOwn); asynchronous(r) },
		"grpo, reference":               func(r *nativeRun) { r.cfg.Loss.KL.Coef = 0.1 },
		"grpo, asynchronous":            asynchronous,
		"remax, a baseline in each":     func(r *nativeRun) { r.cfg.Advantage.Name = "remax"; asynchronous(r) },
		"rae, which learns by the step": func(r *nativeRun) { r.cfg.Advantage.Name = "rae" },
		"a reference whose part adapts": func(r *nativeRun) {
			r.cfg.Loss.KL.Coef, r.cfg.Loss.KL.In, r.cfg.Loss.KL.Target, r.cfg.Loss.KL.Horizon = 0.1, "reward", 1e-4, 1000
		},
		"samples passed over": func(r *nativeRun) {
			r.cfg.Selection.Resample.By, r.cfg.Selection.Resample.Take = "on_correct", 2
		},
		"the best of each group": func(r *nativeRun) {
			r.cfg.Selection.Resample.By, r.cfg.Selection.Resample.Take = "best", 2
			r.cfg.Selection.Overlong.Limit, r.cfg.Selection.Overlong.Buffer = 4, 3
		},
		"adapters": func(r *nativeRun) {
			r.cfg.Publish.Adapter, r.lora = false, native.DefaultLoRA()
			r.lora.Rank, r.lora.Alpha = 2, 16
			asynchronous(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
			r.cfg.Steps, r.cfg.Checkpoint.Every, r.cfg.Optimizer.LearningRate = 5, 1, 0.02
			change(r)
			r.train(t, nil)
			for step := int64(1); step <= r.cfg.Steps; step++ {
				for _, from := range []int64{step - 1, max(0, step-2)} {
					p, err := relearn.Find(r.cfg.Checkpoint.Dir, from+1, step)
					require.NoError(t, err)
					require.Equal(t, from, p.From.State.Step)
					require.Len(t, p.Records, int(step-from))
					for _, o := range r.again(t, p) {
						require.True(t, o.Equal(), "step %d from %d: files %v, numbers %v", o.Step, from, o.Files, o.Numbers)
						require.NotEmpty(t, o.Now.Numbers)
						require.NotEmpty(t, o.Now.Files)
					}
				}
			}
			// The comparison sees what is otherwise.
			p, err := relearn.Find(r.cfg.Checkpoint.Dir, 5, 5)
			require.NoError(t, err)
			r.cfg.Optimizer.LearningRate, r.cfg.Critic.Optimizer.LearningRate = 0.03, 0.4
			o := r.again(t, p)[0]
			require.False(t, o.Equal())
			require.NotEmpty(t, o.Files, fmt.Sprint(o.Numbers))
		})
	}
}

// A step whose checkpoint was light is compared with the version that was published of it.
func TestALightStepIsComparedWithItsPublishedVersion(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*nativeRun){
		"merged": func(*nativeRun) {},
		"bfloat16, a value head": func(r *nativeRun) {
			critical(&r.cfg, learner.CriticHead)
			r.cfg.Critic.WarmupSteps, r.cfg.Publish.DType = 0, "bfloat16"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
			r.cfg.Steps, r.cfg.Optimizer.LearningRate = 5, 0.02
			change(r)
			r.train(t, nil)
			p, err := relearn.Find(r.cfg.Checkpoint.Dir, 1, 4)
			require.NoError(t, err)
			require.Zero(t, p.From.State.Step)
			for _, o := range r.again(t, p) {
				require.True(t, o.ComparesWeights())
				require.True(t, o.Equal(), "step %d: files %v, numbers %v", o.Step, o.Files, o.Numbers)
			}
			// Weights that are not those of the published version are seen.
			p.Records[1].Began.Files[gpu.WeightsFile] = "other"
			o := r.again(t, p)[0]
			require.Equal(t, []string{gpu.WeightsFile}, o.Files)
			require.Empty(t, o.Numbers)
		})
	}
}

// damageFile changes the last byte of a file.
func damageFile(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

func TestAStepThatLacksItsCheckpointOrItsBatchIsNamed(t *testing.T) {
	t.Parallel()
	r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
	r.cfg.Steps, r.cfg.Checkpoint.Every, r.cfg.Checkpoint.FullEvery, r.cfg.Optimizer.LearningRate = 8, 3, 1, 0.02
	r.train(t, nil)
	dir := r.cfg.Checkpoint.Dir // it has the checkpoints 0, 3, 6, 7 and 8
	can, err := relearn.Replayable(dir)
	require.NoError(t, err)
	require.Equal(t, []relearn.Range{{First: 1, Last: 8}}, can)
	from := func(step, until int64) (int64, error) {
		p, err := relearn.Find(dir, step, until)
		if err != nil {
			return -1, err
		}
		for _, o := range r.again(t, p) {
			require.True(t, o.Equal(), "step %d from %d", o.Step, p.From.State.Step)
		}
		return p.From.State.Step, nil
	}
	at, err := from(5, 6)
	require.NoError(t, err)
	require.EqualValues(t, 3, at)

	// A damaged checkpoint is passed over, and named.
	damageFile(t, filepath.Join(checkpoint.StepDir(dir, 7), gpu.WeightsFile))
	p, err := relearn.Find(dir, 8, 8)
	require.NoError(t, err)
	require.EqualValues(t, 6, p.From.State.Step)
	require.Len(t, p.Damage, 1)
	require.Equal(t, gpu.WeightsFile, p.Damage[0].File)

	batches := filepath.Join(dir, "batches")
	damageFile(t, filepath.Join(batches, "step_000005.zst"))
	_, err = from(4, 5)
	require.ErrorContains(t, err, "step 5 cannot be replayed: checkpoint")
	require.ErrorContains(t, err, "step_000005.zst")
	require.NoError(t, os.Remove(filepath.Join(batches, "step_000005.zst")))
	_, err = from(4, 5)
	require.ErrorIs(t, err, checkpoint.ErrNoBatch)
	require.ErrorContains(t, err, "the steps that can be replayed from what is kept are 1 to 4, 7 to 8")

	require.NoError(t, os.RemoveAll(checkpoint.StepDir(dir, 0)))
	_, err = from(2, 2)
	require.ErrorContains(t, err, "step 2 cannot be replayed: "+dir+" has no full checkpoint before it")
	require.ErrorContains(t, err, "are 4, 7 to 8")
	_, err = from(9, 9)
	require.ErrorContains(t, err, "step 9 cannot be replayed: steps.jsonl has no line of step 9")
	require.ErrorContains(t, err, "are 4, 7 to 8")
	var lack *relearn.LackError
	require.ErrorAs(t, err, &lack)
	require.EqualValues(t, 9, lack.Step)
}

// A run that goes on under other settings is learnt again under those of each step.
func TestThePlanHasTheSettingsOfEachStep(t *testing.T) {
	t.Parallel()
	r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
	r.cfg.Steps, r.cfg.Checkpoint.Every = 2, 1
	for i, rate := range []float64{0.02, 0.05} {
		r.cfg.Steps, r.cfg.Optimizer.LearningRate = int64(2*(i+1)), rate
		r.train(t, map[string]string{"rate": fmt.Sprint(rate), "steps": fmt.Sprint(r.cfg.Steps)})
	}
	p, err := relearn.Find(r.cfg.Checkpoint.Dir, 1, 4)
	require.NoError(t, err)
	require.Equal(t, 2, p.SameSettings(0))
	require.Equal(t, 2, p.SameSettings(2))
	require.Equal(t, map[string]string{"rate": "0.02", "steps": "2"}, p.Settings(1))
	require.Equal(t, map[string]string{"rate": "0.05", "steps": "4"}, p.Settings(2))
}

func TestABundleIsReplayedElsewhereAndRefusedWhereItWasCutOrChanged(t *testing.T) {
	t.Parallel()
	r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
	r.cfg.Steps, r.cfg.Checkpoint.Every, r.cfg.Optimizer.LearningRate, r.cfg.Loss.KL.Coef = 4, 1, 0.02, 0.1
	r.train(t, nil)
	p, err := relearn.Find(r.cfg.Checkpoint.Dir, 3, 4)
	require.NoError(t, err)
	var out bytes.Buffer
	about := relearn.Bundle{Run: "test", Step: 3, Until: 4, Version: "v1", Commit: "abc"}
	require.NoError(t, relearn.WriteBundle(&out, about, r.cfg.Checkpoint.Dir, p, []byte("run: {name: test}\n")))
	whole := out.Bytes()

	dir := t.TempDir()
	read, err := relearn.ReadBundle(bytes.NewReader(whole), dir)
	require.NoError(t, err)
	about.Format = read.Format
	require.Equal(t, &about, read)
	text, err := os.ReadFile(filepath.Join(dir, relearn.ConfigEntry))
	require.NoError(t, err)
	require.Equal(t, "run: {name: test}\n", string(text))
	elsewhere := *r
	elsewhere.cfg.Checkpoint.Dir = relearn.StoreIn(dir)
	require.NoError(t, os.RemoveAll(r.cfg.Checkpoint.Dir))
	p, err = relearn.Find(elsewhere.cfg.Checkpoint.Dir, 3, 4)
	require.NoError(t, err)
	for _, o := range elsewhere.again(t, p) {
		require.True(t, o.Equal(), "step %d: files %v, numbers %v", o.Step, o.Files, o.Numbers)
	}

	unpack := func(data []byte) (string, error) {
		dir := t.TempDir()
		_, err := relearn.ReadBundle(bytes.NewReader(data), dir)
		return dir, err
	}
	_, err = unpack(packed(t, "bundle.json", "null", "END.json", `{"bundle.json": "`+schemas.ContentHash([]byte("null"))+`"}`))
	require.ErrorContains(t, err, "the bundle has format 0", "it says nothing of itself")
	for at := 0; at < len(whole); at += 10 {
		_, err := unpack(whole[:at])
		require.ErrorContains(t, err, "it is no whole bundle", "cut at byte %d of %d", at, len(whole))
	}
	original, err := unpack(whole)
	require.NoError(t, err)
	want := filesIn(t, original)
	for at := 0; at < len(whole); at += 97 {
		changed := bytes.Clone(whole)
		changed[at] ^= 0x10
		dir, err := unpack(changed)
		if err == nil { // the compression has bits that mean nothing
			require.Equal(t, want, filesIn(t, dir), "changed at byte %d of %d", at, len(whole))
			continue
		}
		require.ErrorContains(t, err, "it is no whole bundle", "changed at byte %d of %d", at, len(whole))
	}
}

// packed is a bundle of files, each a name and its text.
func packed(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed, err := zstd.NewWriter(&out)
	require.NoError(t, err)
	w := tar.NewWriter(compressed)
	for pair := range slices.Chunk(files, 2) {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: pair[0], Size: int64(len(pair[1]))}))
		_, err = w.Write([]byte(pair[1]))
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(w.Close(), compressed.Close()))
	return out.Bytes()
}

// filesIn has the content of each file below a folder.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(data)
		return err
	}))
	return out
}

// The record has each group's prompt, and of each trajectory that was trained on its mean advantage.
func TestTheRecordHasPromptsAndAdvantages(t *testing.T) {
	t.Parallel()
	r := &nativeRun{cfg: testConfig(t.TempDir()), w: newWorld(8)}
	r.cfg.Steps, r.cfg.Selection.Resample.By, r.cfg.Selection.Resample.Take = 3, "on_correct", 2
	r.cfg.Advantage.Name = "remax"
	r.w.flat, r.cfg.Selection.DropZeroVariance = 2, true
	r.train(t, nil)
	records, err := checkpoint.ReadRecords(r.cfg.Checkpoint.Dir)
	require.NoError(t, err)
	passedOver, dropped := 0, 0
	for _, rec := range records[1:] {
		for _, g := range rec.Groups {
			cursor, _, _, ok := batch.ParseTicketID(g.Members[0].ID)
			require.True(t, ok)
			require.Equal(t, "count", g.Task)
			require.Equal(t, fmt.Sprintf("q%d", cursor), g.Prompt)
			require.NotNil(t, g.Baseline)
			require.Nil(t, g.Baseline.Advantage)
			for _, m := range g.Members {
				if m.PassedOver {
					require.Nil(t, m.Advantage)
					passedOver++
					continue
				}
				require.InDelta(t, m.Reward-g.Baseline.Reward, *m.Advantage, 1e-6, "remax compares with the baseline")
			}
		}
		for _, d := range rec.Dropped {
			require.Equal(t, fmt.Sprintf("q%d", d.Cursor), d.Prompt)
			dropped++
		}
	}
	require.Positive(t, passedOver)
	require.Positive(t, dropped)
}
