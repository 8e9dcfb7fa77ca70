package weightsbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/weights"
)

// Deltas are the sizes of a run's published versions: the first whole, the others as deltas.
type Deltas struct {
	// LearningRate and StepsPerVersion are the run's: how far AdamW may move a weight from one version to the next.
	LearningRate    float64 `json:"learning_rate"`
	StepsPerVersion int     `json:"optimizer_steps_per_version"`
	// Whole is the size of a whole version in bytes.
	Whole    int64   `json:"whole_bytes"`
	Versions []Delta `json:"versions"`
}

// Delta is a version against the version before.
type Delta struct {
	Version int64 `json:"version"`
	// Bytes were stored, the share Share of a whole version.
	Bytes int64   `json:"bytes"`
	Share float64 `json:"share_of_whole"`
	// Changed is the share of the numbers that changed, Neighbours the share of these that are now
	// the next representable number.
	Changed    float64 `json:"changed"`
	Neighbours float64 `json:"changed_to_a_neighbour"`
}

// Mean is that of the shares from a version on; 0 where there is none.
func (d *Deltas) Mean(from int64) float64 {
	sum, n := 0.0, 0
	for _, v := range d.Versions {
		if v.Version >= from {
			sum, n = sum+v.Share, n+1
		}
	}
	return sum / float64(max(n, 1))
}

// Largest is that of the shares.
func (d *Deltas) Largest() float64 {
	most := 0.0
	for _, v := range d.Versions {
		most = max(most, v.Share)
	}
	return most
}

// Version is a policy version as safetensors: its shards.
type Version [][]byte

func (v Version) totalBytes() (n int64) {
	for _, shard := range v {
		n += int64(len(shard))
	}
	return n
}

// ErrNotBfloat16 is returned when a version was not published as bfloat16.
var ErrNotBfloat16 = errors.New("not bfloat16")

// ReadRun reads versions 0 to last of a run back, through the deltas and verified by their hashes, and measures each
// took.
func ReadRun(ctx context.Context, run *streams.Run, last int64) (deltas *Deltas, versions []Version, err error) {
	// A reader of deltas keeps the version before; nothing is published.
	config := weights.DefaultConfig()
	config.BaseEvery = 2
	reader, err := weights.NewLoader(run, config)
	if err != nil {
		return nil, nil, err
	}
	deltas = &Deltas{}
	for version := range last + 1 {
		m, err := run.Manifest(ctx, version)
		if err != nil {
			return nil, nil, err
		}
		if m.DType != "bfloat16" {
			return nil, nil, fmt.Errorf("version %d is %s: %w", version, m.DType, ErrNotBfloat16)
		}
		v, err := reader.Load(ctx, m)
		if err != nil {
			return nil, nil, err
		}
		versions = append(versions, v)
		if version == 0 {
			deltas.Whole = versions[0].totalBytes()
			continue
		}
		d := Delta{Version: version}
		for _, shard := range m.Shards {
			d.Bytes += shard.Size
		}
		d.Share = float64(d.Bytes) / float64(deltas.Whole)
		d.Changed, d.Neighbours = compareVersions(versions[version-1], v)
		deltas.Versions = append(deltas.Versions, d)
	}
	return deltas, versions, nil
}

// compareVersions compares two versions of bfloat16 numbers.
func compareVersions(before, after Version) (share, neighbours float64) {
	var differ, next int
	for shard := range before {
		for i := 0; i+1 < len(before[shard]); i += 2 {
			a, b := binary.LittleEndian.Uint16(before[shard][i:]), binary.LittleEndian.Uint16(after[shard][i:])
			if a == b {
				continue
			}
			differ++
			if d := int16(b - a); d == 1 || d == -1 {
				next++
			}
		}
	}
	return float64(differ) / float64(before.totalBytes()/2), float64(next) / float64(max(differ, 1))
}

// MadeUp makes versions of a model that was never trained: weights as they start, and then each moved by a normal
// step of the size of rate. They stand for a model too large to train here, where only sizes and times count.
func MadeUp(ctx context.Context, model gpu.Config, versions int, rate float64) ([]Version, error) {
	engine, err := native.New(model, native.Options{Seed: 1})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	w, err := engine.Weights(ctx)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(1, 2))
	var out []Version
	for range versions {
		v, err := dealShards(w)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		for _, t := range w.Tensors {
			for i := range t.Data {
				t.Data[i] += float32(rate * r.NormFloat64())
			}
		}
	}
	return out, nil
}

// dealShards deals the tensors into about as many bytes each as the trainer does by default.
func dealShards(w *gpu.Weights) (out Version, err error) {
	const limit = 16 << 20
	for from, size := 0, 0; from < len(w.Tensors); {
		to := from
		for size = 0; to < len(w.Tensors) && (to == from || size+2*len(w.Tensors[to].Data) <= limit); to++ {
			size += 2 * len(w.Tensors[to].Data)
		}
		file, err := safetensors.Encode(&gpu.Weights{Tensors: w.Tensors[from:to]}, safetensors.BF16)
		if err != nil {
			return nil, err
		}
		out, from = append(out, file), to
	}
	return out, nil
}
