package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/weights"
)

// frozenWeights are the weights that an engine's adapters are added to, as files.
type frozenWeights struct {
	// hash is the engine's hash of the weights.
	hash   string
	rank   int
	alpha  float64
	paths  []string
	shards []schemas.Shard
}

// adapterEntry returns the frozen weights' entry in a version's manifest.
func (f *frozenWeights) adapterEntry() *schemas.Adapter {
	return &schemas.Adapter{Rank: f.rank, Alpha: f.alpha, Frozen: slices.Clone(f.shards)}
}

// keepHashes keeps the hashes under which frozen weights were stored.
func (e *exportedVersion) keepHashes(m *schemas.Manifest) {
	if e.adapter != nil && m.Adapter != nil {
		e.adapter.shards = slices.Clone(m.Adapter.Frozen)
	}
}

// trainsAdapters reports whether the engine trains adapters.
func (p *publisher) trainsAdapters() bool {
	a, ok := p.engine.(gpu.Adapting)
	return ok && a.Adapts()
}

// exportAdapter has the engine write its adapters and, where the frozen weights have changed, these too.
func (p *publisher) exportAdapter(ctx context.Context, e *exportedVersion) (err error) {
	// In float32: readers merge before they round, as a merged export does.
	if e.shards, err = p.exportFiles(ctx, e.dir, gpu.ExportOptions{DType: gpu.Float32, Adapter: true}); err != nil {
		return err
	}
	var base struct {
		SHA256 string `json:"sha256"`
	}
	var peft struct {
		Rank  int     `json:"r"`
		Alpha float64 `json:"lora_alpha"`
	}
	for name, into := range map[string]any{gpu.AdapterBaseFile: &base, gpu.AdapterConfigFile: &peft} {
		data, err := os.ReadFile(filepath.Join(e.dir, name))
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			return fmt.Errorf("read what the engine says of its adapters: %s: %w", name, err)
		}
	}
	if f := p.frozen; f == nil || f.hash != base.SHA256 || f.rank != peft.Rank || f.alpha != peft.Alpha {
		next := &frozenWeights{hash: base.SHA256, rank: peft.Rank, alpha: peft.Alpha}
		if err := p.exportFrozen(ctx, next); err != nil {
			return err
		}
		p.frozen = next
	}
	e.adapter = p.frozen
	return nil
}

func (p *publisher) exportFrozen(ctx context.Context, f *frozenWeights) error {
	dir := filepath.Join(p.dir, "frozen")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	files, err := p.exportFiles(ctx, dir, gpu.ExportOptions{ShardBytes: p.cfg.ShardBytes, Frozen: true})
	if err != nil {
		return fmt.Errorf("write the weights that adapters are added to: %w", err)
	}
	for _, file := range files {
		f.paths = append(f.paths, filepath.Join(dir, file.Name))
		f.shards = append(f.shards, schemas.Shard{Encoding: schemas.EncodingSafetensors, Size: file.Size})
	}
	return nil
}

// publishOtherForm publishes a version as merged weights where e is an adapter, and as an adapter where e is merged weights: a run
// that goes on under another trainer.publish.adapter finds its version in that form.
func (p *publisher) publishOtherForm(ctx context.Context, v version, e *exportedVersion) (err error) {
	other := &exportedVersion{version: e.version, dir: e.dir + "-otherwise"}
	defer func() { _ = os.RemoveAll(other.dir) }() // with the folder of all versions at the latest
	if err := os.RemoveAll(other.dir); err != nil {
		return err
	}
	if e.adapter == nil {
		err = p.exportAdapter(ctx, other)
	} else {
		other.shards, err = p.exportFiles(ctx, other.dir, gpu.ExportOptions{DType: gpu.DType(p.cfg.DType), ShardBytes: p.cfg.ShardBytes})
	}
	if err != nil {
		return err
	}
	m, err := p.newManifest(v, other)
	if err != nil {
		return err
	}
	_, err = p.stream.PublishWeights(ctx, m, func(i int) (weights.Blob, error) { return weights.OpenBlob(other.shardPath(i)) })
	return err
}
