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
	"github.com/weir-rl/weir/trainer/checkpoint"
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
	frozen *frozenWeights
	// made is the newest exported version, published the version published last; either may be nil.
	made, published *exportedVersion
	// noted names the files of version notedAt, the version published last; nil where their hashes are not known.
	noted   *checkpoint.Published
	notedAt int64
}

// exportedVersion is a version's folder.
type exportedVersion struct {
	version int64
	dir     string
	// shards are the files that are published; a value head is not among them.
	shards []gpu.File
	// adapter has the weights that the shards are added to; nil where the shards are the weights themselves.
	adapter *frozenWeights
}

// shardPath returns the file of a shard; shards of frozen weights come after the version's own.
func (e *exportedVersion) shardPath(i int) string {
	if i >= len(e.shards) {
		return e.adapter.paths[i-len(e.shards)]
	}
	return filepath.Join(e.dir, e.shards[i].Name)
}

func newPublisher(cfg Publish, deps Deps, dir string) *publisher {
	return &publisher{cfg: cfg, stream: deps.Stream, engine: deps.Engine, tokenizer: deps.Tokenizer, dir: dir}
}

// exportVersion has the engine write its weights, which are version number.
func (p *publisher) exportVersion(ctx context.Context, number int64) (*exportedVersion, error) {
	if p.made != nil && p.made.version == number {
		return p.made, nil
	}
	e := &exportedVersion{version: number, dir: filepath.Join(p.dir, fmt.Sprintf("v%06d", number))}
	if err := os.RemoveAll(e.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if p.trainsAdapters() && p.cfg.Adapter {
		err = p.exportAdapter(ctx, e)
	} else {
		e.shards, err = p.exportFiles(ctx, e.dir, p.exportOptions())
	}
	if err != nil {
		return nil, err
	}
	p.made = e
	return e, nil
}

// exportFiles has the engine write a folder, and returns the folder's files of policy weights.
func (p *publisher) exportFiles(ctx context.Context, dir string, o gpu.ExportOptions) ([]gpu.File, error) {
	pending, err := p.engine.Export(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	files, err := pending.Wait(ctx)
	return gpu.PolicyFiles(files), err
}

// publishVersion sends the shards, each read from its file in turn, then the manifest. The engine must hold that version until it returns.
func (p *publisher) publishVersion(ctx context.Context, v version) error {
	e, err := p.exportVersion(ctx, v.number)
	if err != nil {
		return err
	}
	m, err := p.newManifest(v, e)
	if err != nil {
		return err
	}
	p.stream.SpoolIn(p.dir)
	published, err := p.stream.PublishWeights(ctx, m, func(i int) (weights.Blob, error) { return weights.OpenBlob(e.shardPath(i)) })
	switch {
	case err == nil:
		e.keepHashes(published)
		p.noteFiles(e, published)
	case !errors.Is(err, streams.ErrFenced) || !p.isPublishedInOtherForm(ctx, v, e):
		return err
	}
	return p.removeUnused(e)
}

// noteFiles notes the hashes of a version's own files.
func (p *publisher) noteFiles(e *exportedVersion, m *schemas.Manifest) {
	o := p.exportOptions()
	p.notedAt, p.noted = e.version, &checkpoint.Published{
		DType: string(o.DType), ShardBytes: o.ShardBytes, Adapter: o.Adapter, Files: map[string]string{},
	}
	for i, f := range e.shards {
		if i >= len(m.Shards) || m.Shards[i].Hash == "" {
			p.noted = nil
			return
		}
		p.noted.Files[f.Name] = m.Shards[i].Hash
	}
}

// exportOptions are the options that versions are exported with.
func (p *publisher) exportOptions() gpu.ExportOptions {
	if p.trainsAdapters() && p.cfg.Adapter {
		return gpu.ExportOptions{DType: gpu.Float32, Adapter: true} // in float32: readers merge before they round, as a merged export does
	}
	return gpu.ExportOptions{DType: gpu.DType(p.cfg.DType), ShardBytes: p.cfg.ShardBytes}
}

// removeUnused removes the folders that nothing reads again: with deltas, the next version asks for this version's files.
func (p *publisher) removeUnused(e *exportedVersion) error {
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

// newManifest returns a version's manifest without the hashes, which PublishWeights computes. Readers get no value head.
func (p *publisher) newManifest(v version, e *exportedVersion) (*schemas.Manifest, error) {
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
		m.Adapter = e.adapter.adapterEntry()
	}
	return m, nil
}

// checkManifestFits fails where the stream takes no manifest with as many shards as the engine's weights make. It is called before
// training, so that the fault is found before a version is to be published. The engine holds version number.
func (p *publisher) checkManifestFits(ctx context.Context, number int64) error {
	e, err := p.exportVersion(ctx, number)
	if err != nil {
		return err
	}
	m, err := p.newManifest(version{number: math.MaxInt64, at: time.Now()}, e)
	if err != nil {
		return err
	}
	m.Base = math.MaxInt64
	for i := range m.Shards {
		m.Shards[i] = largestShard()
	}
	if m.Adapter != nil {
		for i := range m.Adapter.Frozen {
			m.Adapter.Frozen[i] = largestShard()
		}
	}
	return p.stream.ManifestFits(m)
}

// largestShard returns a shard entry of maximal encoded size.
func largestShard() schemas.Shard {
	hash := schemas.ContentHash(nil)
	return schemas.Shard{Hash: hash, FullHash: hash, Size: math.MaxInt64, Encoding: schemas.EncodingSafetensors}
}

// isPublishedInOtherForm reports whether the version is published in the other form: as adapters instead of merged weights, or the reverse.
func (p *publisher) isPublishedInOtherForm(ctx context.Context, v version, e *exportedVersion) bool {
	return p.trainsAdapters() && p.publishOtherForm(ctx, v, e) == nil
}

// removeFolders removes the folders.
func (p *publisher) removeFolders() error { return os.RemoveAll(p.dir) }
