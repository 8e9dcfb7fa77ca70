// Package mutants changes the core of the program in small ways, a change at a time, and reports which changes no test
// notices.
//
// A mutant is a changed operator, literal or condition, or a statement less. It is killed when a test fails or does not
// end; it survives when all of the target's tests pass. The mutants are drawn by the seed, so that two trees of the same
// sources get the same ones. Nothing is written into the tree: each mutant is compiled by an overlay.
package mutants

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Config says which mutants are tried.
type Config struct {
	// Dir is the module whose sources are changed.
	Dir string
	// Target is the only target; empty means all of them.
	Target string
	// N is how many mutants of a target are tried; 0 means all. Seed draws them.
	N    int
	Seed uint64
	// At tries only the mutants of these lines, all of them: file:line, with commas between.
	At string
	// Patience is how long the tests of a mutant may take.
	Patience time.Duration
	// Out gets a line for each survivor, and a line for each target.
	Out io.Writer
}

// Default is sixty mutants of each target.
func Default() Config { return Config{N: 60, Seed: 1, Patience: 2 * time.Minute} }

// drawMutants returns the drawn mutants of a list, in the order of trial, and how many that compile are enough; 0 is all.
func (c Config) drawMutants(all []mutant) (drawn []mutant, enough int) {
	if c.At != "" {
		lines := strings.Split(c.At, ",")
		return slices.DeleteFunc(all, func(m mutant) bool {
			return !slices.Contains(lines, fmt.Sprintf("%s:%d", filepath.Base(m.file), m.line))
		}), 0
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, c.N
}

// Run tries the mutants of each target and prints the survivors.
func Run(ctx context.Context, c Config) error {
	named := allTargets()
	if c.Target != "" {
		named = slices.DeleteFunc(named, func(t target) bool { return t.name != c.Target })
	}
	if len(named) == 0 {
		return fmt.Errorf("no target is named %q", c.Target)
	}
	for _, t := range named {
		if err := c.tryTarget(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// tryTarget tries the drawn mutants of a target and prints the survivors.
func (c Config) tryTarget(ctx context.Context, t target) error {
	var all []mutant
	for _, pattern := range t.files {
		files, err := filepath.Glob(filepath.Join(c.Dir, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			found, err := mutantsOf(file)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
	}
	if err := t.checkTestsPass(ctx, c.Dir, c.Patience); err != nil {
		return err
	}
	places := len(all)
	drawn, enough := c.drawMutants(all)
	var tried, killed, timedOut int
	for _, m := range drawn {
		if enough > 0 && tried == enough {
			break
		}
		verdict, err := t.tryMutant(ctx, c.Dir, m, c.Patience)
		if err != nil {
			return err
		}
		switch verdict {
		case notCompiled:
			continue
		case survived:
			name, err := filepath.Rel(c.Dir, m.file)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.Out, "survived %s:%d: %s\n", name, m.line, m.what)
		case tooSlow:
			killed++
			timedOut++
		case killedByTest:
			killed++
		}
		tried++
	}
	fmt.Fprintf(c.Out, "%s: mutants=%d killed=%d (timed out %d) survived=%d of %d places\n", t.name, tried, killed, timedOut, tried-killed, places)
	return nil
}
