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
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
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
	if s, ok := p.stream.(interface{ SpoolIn(dir string) }); ok {
		s.SpoolIn(p.dir)
	}
	err = p.stream.PublishWeights(ctx, m, func(i int) (streams.Blob, error) { return streams.OpenBlob(e.path(i)) })
	if errors.Is(err, streams.ErrFenced) && p.publishedOtherwise(ctx, v, e) {
		err = nil
	}
	if err != nil {
		return err
	}
	e.stored(m)
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
	if s, ok := p.stream.(interface{ Deltas() bool }); ok && s.Deltas() {
		return nil
	}
	p.made, p.published = nil, nil
	return os.RemoveAll(e.dir)
}

// manifest is a version's, of which PublishWeights sets the hashes. Readers get no value head.
func (p *publisher) manifest(v version, e *exported) (*schemas.Manifest, error) {
	model := p.engine.Config()
	model.ValueHead = false
	m, err := p.manifestOf(v, model)
	if err != nil {
		return nil, err
	}
	for _, f := range e.shards {
		m.Shards = append(m.Shards, schemas.Shard{Encoding: schemas.EncodingSafetensors, Size: f.Size})
	}
	if e.adapter != nil {
		m.Adapter = e.adapter.manifest()
	}
	return m, nil
}

func (p *publisher) manifestOf(v version, model gpu.Config) (*schemas.Manifest, error) {
	config, err := json.Marshal(model)
	if err != nil {
		return nil, fmt.Errorf("encode model configuration: %w", err)
	}
	return &schemas.Manifest{
		Run: p.stream.Name(), Version: v.number, Base: schemas.NoBase, DType: p.cfg.DType, PublishedAt: v.at,
		Config: config, ConfigHash: schemas.ContentHash(config), TokenizerHash: schemas.ContentHash(p.tokenizer),
	}, nil
}

// fits fails where the stream takes no manifest of as many shards as the engine's weights make: better before they are
// trained and kept than when they are to be published. The engine holds the version of that number.
func (p *publisher) fits(ctx context.Context, number int64) error {
	stream, ok := p.stream.(interface {
		ManifestFits(m *schemas.Manifest) error
	})
	if !ok {
		return nil
	}
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
	return stream.ManifestFits(m)
}

// largest is a shard as long on the wire as any.
func largest() schemas.Shard {
	hash := schemas.ContentHash(nil)
	return schemas.Shard{Hash: hash, FullHash: hash, Size: math.MaxInt64, Encoding: schemas.EncodingSafetensors}
}

// publishedOtherwise is whether the version is published in another form: with its value head, by an older build, or as
// adapters where it is to be merged weights, or the other way.
func (p *publisher) publishedOtherwise(ctx context.Context, v version, e *exported) bool {
	if p.engine.Config().ValueHead && e.adapter == nil && p.publishAsBefore(ctx, v, e) == nil {
		return true
	}
	return p.adapts() && p.publishOtherForm(ctx, v, e) == nil
}

// publishAsBefore publishes a version as a build before 2026-11-22 did: with its value head, after the last tensor of the
// policy. A run that goes on from such a build's checkpoint finds its version published in that form.
func (p *publisher) publishAsBefore(ctx context.Context, v version, e *exported) error {
	m, err := p.manifestOf(v, p.engine.Config())
	if err != nil {
		return err
	}
	dtype, err := safetensors.Of(gpu.DType(p.cfg.DType))
	if err != nil {
		return err
	}
	last := len(e.shards) - 1
	tensors, err := safetensors.ReadFile(e.path(last))
	if err != nil {
		return err
	}
	head, err := safetensors.ReadFile(filepath.Join(e.dir, gpu.ValueHeadFile))
	if err != nil {
		return err
	}
	ends := safetensors.Deal(append(tensors.Tensors, head.Tensors...), dtype, p.cfg.ShardBytes)
	for range last + len(ends) {
		m.Shards = append(m.Shards, schemas.Shard{Encoding: schemas.EncodingSafetensors})
	}
	return p.stream.PublishWeights(ctx, m, func(i int) (streams.Blob, error) {
		if i < last {
			return streams.OpenBlob(e.path(i))
		}
		data, err := safetensors.Encode(&gpu.Weights{Tensors: ends[i-last]}, dtype)
		return streams.Bytes(data), err
	})
}

// close removes the folders.
func (p *publisher) close() error { return os.RemoveAll(p.dir) }
