package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
)

const referenceDir = "reference"

// Reference is the policy that a run began with: the weights of version 0, kept in a folder of their own since
// the checkpoint of version 0 is pruned. now is where the run stands; at version 0 its weights are written.
func (s *Store) Reference(c gpu.Config, now *Checkpoint) (*gpu.Weights, error) {
	dir := filepath.Join(s.cfg.Dir, referenceDir)
	if now.State.Step == 0 {
		tmp := filepath.Join(s.cfg.Dir, tmpPrefix+referenceDir)
		err := os.RemoveAll(tmp)
		if err == nil {
			err = s.folder.Save(tmp, c, now.Weights, now.Tokenizer)
		}
		if err == nil {
			err = seal(tmp, 0)
		}
		if err == nil {
			err = s.replace(tmp, dir)
		}
		if err != nil {
			return nil, fmt.Errorf("save the reference policy: %w", err)
		}
		return now.Weights, nil
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the run began without a reference policy: put a model folder at %s, or train without the KL term", dir)
	}
	_, err := os.Stat(filepath.Join(dir, manifestFile))
	byHand := errors.Is(err, fs.ErrNotExist)
	if !byHand {
		if err := verify(dir, 0); err != nil {
			return nil, fmt.Errorf("load the reference policy: %w: put the folder back from a copy", err)
		}
	}
	_, w, _, err := s.folder.Load(dir)
	if err == nil && byHand {
		err = seal(dir, 0) // from here on a change is noticed
	}
	if err != nil {
		return nil, fmt.Errorf("load the reference policy: %w", err)
	}
	return w, nil
}
