package weightsbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/internal/memory"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Shapes are models whose way is measured, or computed, by name.
func Shapes() map[string]gpu.Config {
	shape := func(vocab, hidden, intermediate, layers, heads, kvHeads int, tied bool) gpu.Config {
		return gpu.Config{
			ModelType: "qwen2", VocabSize: vocab, HiddenSize: hidden, IntermediateSize: intermediate, NumLayers: layers, NumHeads: heads,
			NumKVHeads: kvHeads, RopeTheta: 1e6, RMSNormEps: 1e-6, TieEmbeddings: tied, MaxPositions: 32768, QKVBias: true,
		}
	}
	return map[string]gpu.Config{
		"25m":          shape(4096, 512, 1536, 7, 8, 8, true),
		"qwen2.5-0.5b": shape(151936, 896, 4864, 24, 14, 2, true),
		"qwen2.5-1.5b": shape(151936, 1536, 8960, 28, 12, 2, true),
		"qwen2.5-7b":   shape(152064, 3584, 18944, 28, 28, 4, false),
	}
}

// ShapeNames are the names of Shapes, sorted.
func ShapeNames() []string { return slices.Sorted(maps.Keys(Shapes())) }

// countWeights is how many weights a model has.
func countWeights(c gpu.Config) (n int64) {
	for _, t := range c.Layout() {
		n += int64(t.Elements())
	}
	return n
}

// ScaleConfig says whose way is measured.
type ScaleConfig struct {
	// Shape is a key of Shapes, For that of the model for which the times are computed.
	Shape, For string
	Backend    gpu.Backend
	// Dir is an empty folder with room for some six copies of the weights in float32.
	Dir string
	// ShardBytes is the publisher's.
	ShardBytes int64
	Log        *slog.Logger
	// Tell is called with each stage when it is done; it may be nil.
	Tell func(Stage)
}

// Validate reports every fault.
func (c ScaleConfig) Validate() error {
	var errs []error
	for key, name := range map[string]string{"shape": c.Shape, "for": c.For} {
		if _, ok := Shapes()[name]; !ok {
			errs = append(errs, fmt.Errorf("%s %q: want one of %s", key, name, strings.Join(ShapeNames(), ", ")))
		}
	}
	if c.ShardBytes <= 0 {
		errs = append(errs, fmt.Errorf("shard bytes %d: must be positive", c.ShardBytes))
	}
	return errors.Join(errs...)
}

// Scale is the cost of each stage of a version's way at a size.
type Scale struct {
	Shape   string `json:"shape"`
	Weights int64  `json:"weights"`
	// For is the model that Computed speaks of, Ratio how many times as many weights it has.
	For    string  `json:"for"`
	Ratio  float64 `json:"ratio"`
	Stages []Stage `json:"stages"`
}

// Stage is a part of the way.
type Stage struct {
	Name string `json:"name"`
	// Bytes are the bytes that it makes, reads or sends.
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	// Computed is Seconds times the ratio: nothing here grows faster than the weights. A stage that has nothing of them takes as long.
	Computed float64 `json:"computed_seconds"`
	// Rest is the memory of the process when the stage began, and Beside the most that it held beside that, in bytes. Memory that it makes to
	// keep, such as a decoder's weights, counts as held beside.
	Rest   int64 `json:"rest_bytes"`
	Beside int64 `json:"beside_bytes"`
}

// scale is a measurement under way.
type scale struct {
	cfg ScaleConfig
	out *Scale
}

// measureStage measures a stage whose time grows as the weights do.
func (s *scale) measureStage(name string, do func() (int64, error)) error {
	return s.measureScaled(name, s.out.Ratio, do)
}

// measureFixed measures a stage that has nothing of the weights.
func (s *scale) measureFixed(name string, do func() (int64, error)) error {
	return s.measureScaled(name, 1, do)
}

// measureScaled measures a part; do returns its bytes.
func (s *scale) measureScaled(name string, ratio float64, do func() (int64, error)) error {
	st := Stage{Name: name, Rest: memory.Settle()}
	stop := memory.Watch()
	began := time.Now()
	n, err := do()
	st.Seconds, st.Bytes = time.Since(began).Seconds(), n
	st.Beside = max(stop()-st.Rest, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	st.Computed = st.Seconds * ratio
	s.out.Stages = append(s.out.Stages, st)
	if s.cfg.Tell != nil {
		s.cfg.Tell(st)
	}
	return nil
}

// MeasureScale takes two versions of a model with random weights, an optimizer step apart, through every part of their way: out
// of an engine, into a checkpoint, over a broker, and into a decoder.
func MeasureScale(ctx context.Context, cfg ScaleConfig) (*Scale, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("measure the way of a version: %w", err)
	}
	model := Shapes()[cfg.Shape]
	s := &scale{cfg: cfg, out: &Scale{Shape: cfg.Shape, Weights: countWeights(model), For: cfg.For}}
	s.out.Ratio = float64(countWeights(Shapes()[cfg.For])) / float64(s.out.Weights)
	defer memory.Bound(20 * s.out.Weights)()
	versions, a, err := s.trainVersions(ctx, model)
	if err != nil {
		return nil, err
	}
	if err := s.sendVersions(ctx, model, versions, a); err != nil || a != nil {
		return s.out, err // a merged folder is read as any
	}
	return s.out, s.swapVersions(versions)
}

// exported is a version's folder and its weight files.
type exported struct {
	dir   string
	files []gpu.File
}

func (e exported) filePaths() (out []string) {
	for _, f := range e.files {
		out = append(out, filepath.Join(e.dir, f.Name))
	}
	return out
}

func (e exported) totalBytes() (n int64) {
	for _, f := range e.files {
		n += f.Size
	}
	return n
}

// trainVersions makes two versions of an engine, and a checkpoint. Of an engine with adapters the versions are the adapters.
func (s *scale) trainVersions(ctx context.Context, model gpu.Config) (out []exported, a *adapters, err error) {
	engine, err := s.cfg.Backend.New(model)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if err := stepOnce(ctx, engine); err != nil {
		return nil, nil, err
	}
	for v := range 2 {
		dir := filepath.Join(s.cfg.Dir, fmt.Sprintf("v%d", v))
		if v == 1 {
			if err := stepOnce(ctx, engine); err != nil {
				return nil, nil, err
			}
		}
		export := func() (int64, error) {
			pending, err := engine.Export(ctx, dir, gpu.ExportOptions{DType: gpu.BFloat16, ShardBytes: s.cfg.ShardBytes})
			if err != nil {
				return 0, err
			}
			files, err := pending.Wait(ctx)
			out = append(out, exported{dir, gpu.PolicyFiles(files)})
			return out[v].totalBytes(), err
		}
		if v == 0 {
			_, err = export() // makes the engine's buffers
		} else {
			err = s.measureStage("export in bfloat16", export)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := s.measureCheckpoint(ctx, engine); err != nil {
		return nil, nil, err
	}
	a, err = s.exportAdapters(ctx, engine, &out)
	return out, a, err
}

// measureCheckpoint writes a checkpoint and goes back to it.
func (s *scale) measureCheckpoint(ctx context.Context, engine gpu.Engine) (err error) {
	dir := filepath.Join(s.cfg.Dir, "checkpoints")
	store, err := checkpoint.Open(checkpoint.Config{Dir: dir, Keep: 1, Messages: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close(), os.RemoveAll(dir)) }()
	size := 12 * s.out.Weights
	err = s.measureStage("checkpoint: weights and moments in float32, hashed and synced", func() (int64, error) {
		return size, store.Save(ctx, &checkpoint.Checkpoint{Policy: engine})
	})
	if err != nil {
		return err
	}
	err = s.measureStage("restore: verify, check and read the checkpoint", func() (int64, error) {
		c, _, err := store.Load()
		if err != nil {
			return 0, err
		}
		if err := engine.Import(ctx, c.Dir); err != nil {
			return 0, err
		}
		return size, engine.LoadOptimizer(ctx, c.Dir, c.State.OptimizerSteps)
	})
	if err != nil {
		return err
	}
	light := &checkpoint.Checkpoint{State: checkpoint.State{Step: 1, Light: true}, Record: checkpoint.Record{Step: 1}, Batch: longBatch()}
	return s.measureFixed("light checkpoint: state and a batch of 64 trajectories of 2,048 tokens, synced", func() (int64, error) {
		err := store.Save(ctx, light)
		if err != nil {
			return 0, err
		}
		return light.Record.Batch.Size, nil
	})
}

// longBatch is a batch of 64 trajectories of 2,048 tokens, half of them sampled, with numbers that do not compress well.
func longBatch() (out []schemas.Delivery) {
	draw := rand.New(rand.NewPCG(1, 2))
	for i := range uint64(64) {
		s := schemas.Segment{Temperature: 1}
		for k := range 2048 {
			action, logprob, version := uint8(k/64%2), float32(0), schemas.NoVersion
			if action == 1 {
				logprob, version = -draw.Float32(), 0
			}
			s.Tokens, s.ActionMask = append(s.Tokens, draw.Int32N(100_000)), append(s.ActionMask, action)
			s.Logprobs, s.Versions = append(s.Logprobs, logprob), append(s.Versions, version)
		}
		t := &schemas.Trajectory{Run: "bench", ID: fmt.Sprint(i), Segments: []schemas.Segment{s}}
		out = append(out, schemas.Delivery{Sequence: i + 1, Trajectory: t})
	}
	return out
}

// stepOnce trains on a few tokens: every weight that they use moves by about the learning rate.
func stepOnce(ctx context.Context, engine gpu.Engine) error {
	part := &gpu.Batch{Tokens: []int32{1, 2, 3, 4}, Offsets: []int{0, 4}, Mask: []uint8{0, 1, 1, 1}}
	err := engine.Accumulate(ctx, []*gpu.Batch{part}, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
		return &gpu.Gradients{Logprobs: []float32{0, 1, 1, 1}}, nil
	})
	if err != nil {
		return err
	}
	_, err = engine.Step(ctx, gpu.StepOptions{LearningRate: madeUpRate, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-12})
	return err
}

// madeUpRate is the learning rate of steps that nobody learns from.
const madeUpRate = 1e-6

// sendVersions takes both versions over a broker and over a shared folder to readers' folders.
func (s *scale) sendVersions(ctx context.Context, model gpu.Config, versions []exported, a *adapters) (err error) {
	server, err := broker.Start(ctx, harness.BrokerConfig(filepath.Join(s.cfg.Dir, "broker")), s.cfg.Log)
	if err != nil {
		return err
	}
	defer server.Shutdown()
	conn, err := harness.Connect(ctx, server.URL(), s.cfg.Log)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, way := range []struct {
		name string
		dir  string
	}{{"broker", ""}, {"shared folder", filepath.Join(s.cfg.Dir, "shared")}} {
		topology := streams.DefaultTopology()
		run, err := conn.Open(ctx, strings.ReplaceAll(way.name, " ", "-"), topology)
		if err != nil {
			return err
		}
		if a != nil {
			return s.sendAdapters(ctx, run, model, versions, a)
		}
		publisher, err := weights.NewPublisher(run, weights.Config{Dir: way.dir, BaseEvery: 8})
		if err != nil {
			return err
		}
		reader, err := weights.NewLoader(run, weights.Config{Dir: way.dir, BaseEvery: 8})
		if err != nil {
			return err
		}
		publisher.SpoolIn(s.cfg.Dir)
		to := filepath.Join(s.cfg.Dir, "reader")
		for v, e := range versions {
			as := []string{"whole", "as a delta"}[v]
			publish := func() (int64, error) {
				m, err := s.newManifest(run, model, int64(v), e)
				if err != nil {
					return 0, err
				}
				if _, err := publisher.PublishFrom(ctx, m, weights.FileSource(e.filePaths())); err != nil {
					return 0, err
				}
				return storedBytes(ctx, run)
			}
			if err := s.measureStage(fmt.Sprintf("%s: publish %s", way.name, as), publish); err != nil {
				return err
			}
			if v == 0 && way.dir == "" {
				err := s.measureStage("hash: publish what is published", func() (int64, error) { _, err := publish(); return e.totalBytes(), err })
				if err != nil {
					return err
				}
			}
			err := s.measureStage(fmt.Sprintf("%s: fetch %s to files, verified", way.name, as), func() (int64, error) {
				m, err := run.LatestManifest(ctx)
				if err != nil {
					return 0, err
				}
				_, err = reader.Files(ctx, m, to)
				return e.totalBytes(), err
			})
			if err != nil {
				return err
			}
		}
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	return nil
}

// newManifest is a version's, of which PublishFrom sets the hashes.
func (s *scale) newManifest(run *streams.Run, model gpu.Config, version int64, e exported) (*schemas.Manifest, error) {
	config, err := json.Marshal(model)
	if err != nil {
		return nil, err
	}
	m := &schemas.Manifest{
		Run: run.Name(), Version: version, Base: schemas.NoBase, DType: "bfloat16", PublishedAt: time.Now(), Config: config,
		ConfigHash: schemas.ContentHash(config), TokenizerHash: schemas.ContentHash(nil),
	}
	for _, f := range e.files {
		m.Shards = append(m.Shards, schemas.Shard{Encoding: schemas.EncodingSafetensors, Size: f.Size})
	}
	return m, nil
}

// storedBytes is the size of the newest version in the store.
func storedBytes(ctx context.Context, run *streams.Run) (n int64, err error) {
	m, err := run.LatestManifest(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range m.Shards {
		n += s.Size
	}
	return n, nil
}

// swapVersions makes a decoder of the first version's folder and puts the second to use.
func (s *scale) swapVersions(versions []exported) error {
	var decoder gpu.Decoder
	lay := func(e exported, out func(*hf.Folder) error) func() (int64, error) {
		return func() (n int64, err error) {
			folder, err := hf.Open(e.dir)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, folder.Close()) }()
			return e.totalBytes(), out(folder)
		}
	}
	err := s.measureStage("make a decoder from the files", lay(versions[0], func(f *hf.Folder) (err error) {
		decoder, err = s.cfg.Backend.NewDecoder(f.Config, f.Weights(), gpu.DecoderOptions{Slots: 1, MaxTokens: 64})
		return err
	}))
	if err != nil {
		return err
	}
	var commit func()
	err = s.measureStage("swap: lay the next version out", lay(versions[1], func(f *hf.Folder) (err error) {
		commit, err = decoder.Prepare(f.Weights())
		return err
	}))
	if err != nil {
		return err
	}
	return s.measureStage("swap: pause", func() (int64, error) { commit(); return 0, nil })
}
