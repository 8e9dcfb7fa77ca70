package cli

import (
	"cmp"
	"path/filepath"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/sglang"
	"github.com/weir-rl/weir/consumers/vllm"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// serverKinds are what inference.engine can name beside this process.
var serverKinds = map[string]servers.Kind{consumers.EngineVLLM: vllm.Kind{}, consumers.EngineSGLang: sglang.Kind{}}

// openSampler makes what inference.engine names, with the folder that it reads versions from, which is nil where it reads them
// from memory. close gives the folder back.
func (s *session) openSampler(cfg *consumers.Config, c *course, metrics *consumers.Metrics) (consumers.Sampler, *consumers.Folder, func(), error) {
	kind, ok := serverKinds[cfg.Engine]
	if !ok {
		engines, err := s.cfg.SamplerBackend()
		if err != nil {
			return nil, nil, nil, err
		}
		return consumers.NewBatcher(*cfg, engines.NewDecoder, metrics), nil, func() {}, nil
	}
	beside, err := s.besideWeights(c)
	if err != nil {
		return nil, nil, nil, err
	}
	folder, err := consumers.OpenFolder(cmp.Or(cfg.Server.Dir, filepath.Join(s.cfg.Folder(), "servers")), beside)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.Server.Dir = folder.Dir()
	closeFolder := func() {
		if err := folder.Close(); err != nil {
			s.log.Warn("close the folder of weights", "folder", folder.Dir(), "err", err)
		}
	}
	return servers.New(*cfg, kind, servers.Options{Metrics: metrics, Log: s.log}), folder, closeFolder, nil
}

// besideWeights writes what a server needs beside the weights: the files of the model that the run began with, or the
// configuration and the tokenizer of the run's own model.
func (s *session) besideWeights(c *course) (func(dir string, m gpu.Config, dtype gpu.DType) error, error) {
	files, err := modelFiles(s.cfg)
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
		return hf.WriteTokenizer(dir, m, c.tokenizer.JSON())
	}, nil
}
