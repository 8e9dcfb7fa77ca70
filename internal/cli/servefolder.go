package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/consumers/openai"
	"github.com/weir-rl/weir/gpu"
)

// isModelFolder reports whether a name is that of a folder with a model's configuration.
func isModelFolder(name string) bool {
	info, err := os.Stat(filepath.Join(name, gpu.ConfigFile))
	return err == nil && info.Mode().IsRegular()
}

// serveFolder serves a model folder until the command's context ends. It is served under inference.openai.model, or else
// under the folder's name.
func (a *app) serveFolder(cmd *cobra.Command, dir string) error {
	s, err := a.openProcess(cmd)
	if err != nil {
		return err
	}
	m, err := s.Models().OpenFolder(cmd.Context(), dir)
	if err != nil {
		return err
	}
	defer m.Close()
	cfg := s.Config.Inference.OpenAI
	cfg.Listen = cmp.Or(cfg.Listen, "127.0.0.1:8000")
	if cfg.Model == a.keys().known.Inference.OpenAI.Model {
		if path, err := filepath.Abs(dir); err == nil {
			cfg.Model = filepath.Base(path)
		}
	}
	api := openai.New(cfg, m.Batcher, m.Codec, nil, s.Log).WithChat(m.Chat).WithEnds(m.Stops)
	return api.Serve(cmd.Context(), serveDrain, func(address string) {
		fmt.Fprintf(a.out, "serving %s as model %s on http://%s/v1\n", dir, cfg.Model, address)
	})
}
