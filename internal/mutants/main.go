// Command mutants changes the core of the program in small ways, a change at a time, and reports which changes no test
// notices:
//
//	go run ./internal/mutants                        # every target
//	go run ./internal/mutants -target batch -n 100   # a hundred mutants of one
//
// A mutant is one changed operator, literal or condition, or one statement less. It is killed when a test fails or does not
// end; it survives when all of the target's tests pass. The mutants are drawn by the seed, so that two trees of the same
// sources get the same ones. Nothing is written into the tree: each mutant is compiled by an overlay.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "the module whose sources are changed")
	only := flag.String("target", "", "the only target; empty means all of them")
	n := flag.Int("n", 60, "mutants a target; 0 means every one")
	seed := flag.Uint64("seed", 1, "draws the mutants")
	patience := flag.Duration("timeout", 2*time.Minute, "how long the tests of a mutant may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *only, *n, *seed, *patience); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, only string, n int, seed uint64, patience time.Duration) error {
	named := targets()
	if only != "" {
		named = slices.DeleteFunc(named, func(t target) bool { return t.name != only })
	}
	if len(named) == 0 {
		return fmt.Errorf("no target is named %q", only)
	}
	for _, t := range named {
		if err := attempt(ctx, dir, t, n, seed, patience); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// attempt tries n mutants of a target and prints the survivors.
func attempt(ctx context.Context, dir string, t target, n int, seed uint64, patience time.Duration) error {
	var all []mutant
	for _, pattern := range t.files {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
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
	if err := t.passes(ctx, dir, patience); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var tried, killed, timedOut int
	for _, m := range all {
		if n > 0 && tried == n {
			break
		}
		verdict, err := t.try(ctx, dir, m, patience)
		if err != nil {
			return err
		}
		switch verdict {
		case notCompiled:
			continue
		case survived:
			name, err := filepath.Rel(dir, m.file)
			if err != nil {
				return err
			}
			fmt.Printf("survived %s:%d: %s\n", name, m.line, m.what)
		case tooSlow:
			killed++
			timedOut++
		case killedByTest:
			killed++
		}
		tried++
	}
	fmt.Printf("%s: mutants=%d killed=%d (timed out %d) survived=%d of %d places\n", t.name, tried, killed, timedOut, tried-killed, len(all))
	return nil
}
