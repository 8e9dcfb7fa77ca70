package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/sglang"
	"github.com/weir-rl/weir/consumers/vllm"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/internal/memory"
)

// serverKinds are the inference servers that inference.engine can name.
var serverKinds = map[string]servers.Kind{consumers.EngineVLLM: vllm.Kind{}, consumers.EngineSGLang: sglang.Kind{}}

// samplerOpener makes samplers of the run's versions, with the folders that they read versions from.
type samplerOpener struct {
	cfg    *config.Config
	course *Course
	log    *slog.Logger
}

// openSampler makes the sampler that inference.engine names, with the folder that it reads versions from; nil where it reads them from
// memory. close gives the folder back.
func (o *samplerOpener) openSampler(cfg *consumers.Config, metrics *consumers.Metrics) (consumers.Sampler, *consumers.Folder, func(), error) {
	kind, ok := serverKinds[cfg.Engine]
	if !ok {
		engines, err := o.cfg.SamplerBackend()
		if err != nil {
			return nil, nil, nil, err
		}
		batcher := consumers.NewBatcher(*cfg, boundDecoders(engines.NewDecoder), metrics)
		if large, err := o.largeModel(); err != nil || !large {
			return batcher, nil, func() {}, err
		}
		folder, closeFolder, err := o.openVersions(filepath.Join(o.cfg.Folder(), "inference"))
		return batcher, folder, closeFolder, err
	}
	inMemory := cfg.Server.Dir == "" && servers.TakesMemory(cfg, kind)
	folder, closeFolder, err := o.openVersions(cmp.Or(cfg.Server.Dir, filepath.Join(o.cfg.Folder(), "servers")))
	if err != nil {
		return nil, nil, nil, err
	}
	if inMemory {
		o.useMemory(folder)
	}
	cfg.Server.Dir, cfg.Longest = folder.Dir(), o.cfg.Longest()
	return servers.New(*cfg, kind, servers.Options{Metrics: metrics, Log: o.log}), folder, closeFolder, nil
}

// The part of the memory that versions for servers may take, and how many versions lie there at once: the newest, the version before, the
// next, and a version at a server that is slower than the others.
const (
	memoryPart     = 4
	versionsAtOnce = 4
)

// useMemory has the versions lie in the shared memory of the machine, where they are a small part of what this process may have.
func (o *samplerOpener) useMemory(folder *consumers.Folder) {
	model, err := o.servedModel()
	if err != nil {
		return // the run says so when it opens the model
	}
	need, most := versionsAtOnce*weightBytes(model), machine.Limit()
	if most.Bytes/memoryPart < need {
		o.log.Info("versions for servers go by the disk: they would be a large part of the memory", "bytes", need, "memory", most.Bytes)
		return
	}
	if err := folder.UseMemory(need, o.log); err != nil {
		o.log.Warn("versions for servers go by the disk", "err", err)
	}
}

// largeWeights is the size from which on versions go to the sampler of this process as files and not through memory, in bytes of
// float32: below it files take longer than they save.
const largeWeights = 64 << 20

// largeModel reports whether versions of the configured model are of that size.
func (o *samplerOpener) largeModel() (bool, error) {
	model, err := o.servedModel()
	return err == nil && weightBytes(model) >= largeWeights, err
}

// servedModel is the configured model.
func (o *samplerOpener) servedModel() (gpu.Config, error) {
	if o.cfg.Model.Folder == "" {
		return o.cfg.Model.Config(o.course.Tokenizer.Size()), nil
	}
	folder, err := hf.Open(o.cfg.Model.Folder)
	if err != nil {
		return gpu.Config{}, err
	}
	return folder.Config, folder.Close()
}

// boundDecoders makes decoders beside which less garbage may lie the larger they are: two versions are held during a swap.
func boundDecoders(newDecoder consumers.NewDecoder) consumers.NewDecoder {
	return func(c gpu.Config, w *gpu.Weights, o gpu.DecoderOptions) (gpu.Decoder, error) {
		memory.Bound(2 * weightBytes(c)) // as long as the process lives
		return newDecoder(c, w, o)
	}
}

// mostSamplers is how many processes of a machine may keep versions in the folder of a run.
const mostSamplers = 64

// openVersions takes a folder for versions: that of the name or, where another process has it, of the name and a number.
func (o *samplerOpener) openVersions(name string) (*consumers.Folder, func(), error) {
	beside, err := o.besideWeights()
	if err != nil {
		return nil, nil, err
	}
	folder, err := consumers.OpenFolder(name, beside)
	for n := 2; errors.Is(err, consumers.ErrTaken) && n <= mostSamplers && o.cfg.Inference.Server.Dir == ""; n++ {
		folder, err = consumers.OpenFolder(fmt.Sprintf("%s-%d", name, n), beside)
	}
	if err != nil {
		return nil, nil, err
	}
	return folder, func() {
		if err := folder.Close(); err != nil {
			o.log.Warn("close the folder of weights", "folder", folder.Dir(), "err", err)
		}
	}, nil
}

// besideWeights writes the files that a server needs beside the weights: the files of the model that the run began with, or the
// configuration and the tokenizer of the run's own model.
func (o *samplerOpener) besideWeights() (func(dir string, m gpu.Config, dtype gpu.DType) error, error) {
	files, err := modelFiles(o.cfg)
	if err != nil {
		return nil, err
	}
	return func(dir string, m gpu.Config, dtype gpu.DType) error {
		if files != nil {
			return files.Write(dir)
		}
		if _, err := hf.WriteConfig(dir, m, dtype); err != nil {
			return err
		}
		return hf.WriteTokenizer(dir, m, o.course.Tokenizer.JSON())
	}, nil
}

// newLastSampler makes the sampler that scores the last version when nothing else samples any more: the sampler that inference.engine
// names, with a single server where Weir starts servers.
func (o *samplerOpener) newLastSampler(ctx context.Context) (*Sampler, func() error, error) {
	cfg := scoringConfig(o.cfg)
	cfg.Server.Count = 1
	cfg.Server.Devices = cfg.Server.Devices[:min(1, len(cfg.Server.Devices))]
	engine, folder, closeFolder, err := o.openSampler(&cfg, nil)
	if err != nil {
		return nil, nil, err
	}
	p := &Sampler{Engine: engine, folder: folder}
	wait := p.runEngine(ctx)
	return p, func() error { defer closeFolder(); return wait() }, nil
}
