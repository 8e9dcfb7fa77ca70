package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/weights"
)

// publisher makes policy versions visible to the inference consumers: the engine writes each to a folder, whose files are
// the version's shards.
type publisher struct {
	cfg       Publish
	stream    Stream
	engine    gpu.Engine
	tokenizer []byte
	// dir holds a folder for each version that is still read from.
	dir string
	// frozen are the weights that adapters are added to; nil before the first version, and without adapters.
	frozen *frozen
	// made is the newest that was exported, published the one published last; either may be nil.
	made, published *exported
}

// exported is a version's folder.
type exported struct {
	version int64
	dir     string
	// shards are the files that are published: a value head is none.
	shards []gpu.File
	// adapter says what the shards are added to; nil where they are the weights themselves.
	adapter *frozen
}

// path is a shard's file; those of frozen weights come after the version's own.
func (e *exported) path(i int) string {
	if i >= len(e.shards) {
		return e.adapter.paths[i-len(e.shards)]
	}
	return filepath.Join(e.dir, e.shards[i].Name)
}

func newPublisher(cfg Publish, deps Deps, dir string) *publisher {
	return &publisher{cfg: cfg, stream: deps.Stream, engine: deps.Engine, tokenizer: deps.Tokenizer, dir: dir}
}

// export has the engine write what it holds, which is the version of that number.
func (p *publisher) export(ctx context.Context, number int64) (*exported, error) {
	if p.made != nil && p.made.version == number {
		return p.made, nil
	}
	e := &exported{version: number, dir: filepath.Join(p.dir, fmt.Sprintf("v%06d", number))}
	if err := os.RemoveAll(e.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if p.adapts() && p.cfg.Adapter {
		err = p.exportAdapter(ctx, e)
	} else {
		e.shards, err = p.write(ctx, e.dir, gpu.ExportOptions{DType: gpu.DType(p.cfg.DType), ShardBytes: p.cfg.ShardBytes})
	}
	if err != nil {
		return nil, err
	}
	p.made = e
	return e, nil
}

// write has the engine write a folder, and lists its files of the policy's weights.
func (p *publisher) write(ctx context.Context, dir string, o gpu.ExportOptions) ([]gpu.File, error) {
	pending, err := p.engine.Export(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	files, err := pending.Wait(ctx)
	return gpu.PolicyFiles(files), err
}

// publish sends the shards, each read from its file when it is its turn, then the manifest. The engine holds that version until it returns.
func (p *publisher) publish(ctx context.Context, v version) error {
	e, err := p.export(ctx, v.number)
	if err != nil {
		return err
	}
	m, err := p.manifest(v, e)
	if err != nil {
		return err
	}
	p.stream.SpoolIn(p.dir)
	published, err := p.stream.PublishWeights(ctx, m, func(i int) (weights.Blob, error) { return weights.OpenBlob(e.path(i)) })
	switch {
	case err == nil:
		e.keepNames(published)
	case !errors.Is(err, streams.ErrFenced) || !p.publishedOtherwise(ctx, v, e):
		return err
	}
	return p.tidy(e)
}

// tidy removes the folders that nothing reads again: with deltas, the next version asks for this one's files.
func (p *publisher) tidy(e *exported) error {
	before := p.published
	p.published = e
	if before != nil && before.dir != e.dir {
		if err := os.RemoveAll(before.dir); err != nil {
			return err
		}
	}
	if p.stream.Deltas() {
		return nil
	}
	p.made, p.published = nil, nil
	return os.RemoveAll(e.dir)
}

// manifest is a version's, without the hashes, which PublishWeights finds. Readers get no value head.
func (p *publisher) manifest(v version, e *exported) (*schemas.Manifest, error) {
	model := p.engine.Config()
	model.ValueHead = false
	config, err := json.Marshal(model)
	if err != nil {
		return nil, fmt.Errorf("encode model configuration: %w", err)
	}
	m := &schemas.Manifest{
		Run: p.stream.Name(), Version: v.number, Base: schemas.NoBase, DType: p.cfg.DType, PublishedAt: v.at,
		Config: config, ConfigHash: schemas.ContentHash(config), TokenizerHash: schemas.ContentHash(p.tokenizer),
	}
	for _, f := range e.shards {
		m.Shards = append(m.Shards, schemas.Shard{Encoding: schemas.EncodingSafetensors, Size: f.Size})
	}
	if e.adapter != nil {
		m.Adapter = e.adapter.manifest()
	}
	return m, nil
}

// fits fails where the stream takes no manifest of as many shards as the engine's weights make: better before they are
// trained and kept than when they are to be published. The engine holds the version of that number.
func (p *publisher) fits(ctx context.Context, number int64) error {
	e, err := p.export(ctx, number)
	if err != nil {
		return err
	}
	m, err := p.manifest(version{number: math.MaxInt64, at: time.Now()}, e)
	if err != nil {
		return err
	}
	m.Base = math.MaxInt64
	for i := range m.Shards {
		m.Shards[i] = largest()
	}
	if m.Adapter != nil {
		for i := range m.Adapter.Frozen {
			m.Adapter.Frozen[i] = largest()
		}
	}
	return p.stream.ManifestFits(m)
}

// largest is a shard as long on the wire as any.
func largest() schemas.Shard {
	hash := schemas.ContentHash(nil)
	return schemas.Shard{Hash: hash, FullHash: hash, Size: math.MaxInt64, Encoding: schemas.EncodingSafetensors}
}

// publishedOtherwise is whether the version is published in another form: as adapters where it is to be merged weights, or the other
// way.
func (p *publisher) publishedOtherwise(ctx context.Context, v version, e *exported) bool {
	return p.adapts() && p.publishOtherForm(ctx, v, e) == nil
}

// close removes the folders.
func (p *publisher) close() error { return os.RemoveAll(p.dir) }
