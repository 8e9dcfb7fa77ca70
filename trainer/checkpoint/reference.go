package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const referenceDir = "reference"

// Reference gives an engine the policy that a run began with: the weights of version 0, kept in a folder of their own since the checkpoint
// of version 0 is pruned. step is the run's step; at step 0 the weights are policy's, and written.
func (s *Store) Reference(ctx context.Context, step int64, policy Network, tokenizer []byte, into Importer) error {
	dir := filepath.Join(s.cfg.Dir, referenceDir)
	if step == 0 {
		if err := s.writeReference(ctx, dir, policy, tokenizer); err != nil {
			return fmt.Errorf("save the reference policy: %w", err)
		}
	}
	if err := LoadReference(ctx, s.cfg.Dir, into); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, manifestFile)); errors.Is(err, fs.ErrNotExist) {
		// It was put there by hand: from here on a change is noticed.
		if err := sealFolder(dir, 0); err != nil {
			return fmt.Errorf("load the reference policy: %w", err)
		}
	}
	return nil
}

// ReferenceDir is the folder with the policy that the run of a store began with; "" where the run keeps none.
func ReferenceDir(store string) string {
	dir := filepath.Join(store, referenceDir)
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// Importer takes the weights of a folder.
type Importer interface {
	Import(ctx context.Context, dir string) error
}

// LoadReference gives an engine the policy that the run of a store began with, and writes nothing.
func LoadReference(ctx context.Context, store string, into Importer) error {
	dir := filepath.Join(store, referenceDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the run began without a reference policy: put a model folder at %s, or train without the KL term", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, manifestFile)); !errors.Is(err, fs.ErrNotExist) {
		if err := verifyFolder(dir, 0); err != nil {
			return fmt.Errorf("load the reference policy: %w: put the folder back from a copy", err)
		}
	}
	if err := into.Import(ctx, dir); err != nil {
		return fmt.Errorf("load the reference policy: %w", err)
	}
	return nil
}

func (s *Store) writeReference(ctx context.Context, dir string, policy Network, tokenizer []byte) error {
	tmp := s.Scratch(referenceDir)
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := writeModel(ctx, tmp, policy, tokenizer); err != nil {
		return err
	}
	if err := sealFolder(tmp, 0); err != nil {
		return err
	}
	return s.replaceFolder(tmp, dir)
}
