package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Critic is a critic that is a network of its own, in a folder within the checkpoint.
type Critic struct {
	Config    gpu.Config
	Weights   *gpu.Weights
	Optimizer *gpu.OptimizerState
}

func (s *Store) writeCritic(tmp string, c *Checkpoint) error {
	if c.Critic == nil {
		return nil
	}
	dir := filepath.Join(tmp, criticDir)
	if err := s.folder.Save(dir, c.Critic.Config, c.Critic.Weights, c.Tokenizer); err != nil {
		return err
	}
	if err := writeMoments(dir, c.Critic.Optimizer); err != nil {
		return err
	}
	s.after("critic")
	return nil
}

// readCritic is nil where the checkpoint has none.
func readCritic(dir string, steps int64, folder Folder) (*Critic, error) {
	dir = filepath.Join(dir, criticDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c := &Critic{Optimizer: &gpu.OptimizerState{Steps: steps}}
	var err error
	if c.Config, c.Weights, _, err = folder.Load(dir); err != nil {
		return nil, err
	}
	c.Optimizer.Moments, err = readMoments(dir)
	return c, err
}

// writeMoments streams the moments: they are twice the model.
func writeMoments(dir string, o *gpu.OptimizerState) error {
	f, err := os.Create(filepath.Join(dir, optimizerFile))
	if err != nil {
		return err
	}
	return errors.Join(safetensors.Write(f, &gpu.Weights{Tensors: o.Moments}, safetensors.F32), f.Close())
}

func readMoments(dir string) ([]gpu.Tensor, error) {
	moments, err := safetensors.ReadFile(filepath.Join(dir, optimizerFile))
	if err != nil {
		return nil, err
	}
	return moments.Tensors, nil
}
