// Command mutants changes the core of the program in small ways, a change at a time, and reports which changes no test
// notices:
//
//	go run ./internal/mutants                        # every target
//	go run ./internal/mutants -target batch -n 100   # a hundred mutants of one
//	go run ./internal/mutants -target batch -at rows.go:110,ledger.go:62   # every mutant of two lines
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
	"strings"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "the module whose sources are changed")
	only := flag.String("target", "", "the only target; empty means all of them")
	n := flag.Int("n", 60, "mutants a target; 0 means every one")
	at := flag.String("at", "", "only the mutants of these lines, every one: file:line, with commas between")
	seed := flag.Uint64("seed", 1, "draws the mutants")
	patience := flag.Duration("timeout", 2*time.Minute, "how long the tests of a mutant may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *only, draw{n: *n, seed: *seed, at: *at}, *patience); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// draw says which mutants of a target are tried.
type draw struct {
	n    int
	seed uint64
	at   string
}

// of is the drawn mutants of a list, in the order of trial, and how many that compile are enough; 0 is all.
func (d draw) of(all []mutant) (drawn []mutant, enough int) {
	if d.at != "" {
		lines := strings.Split(d.at, ",")
		return slices.DeleteFunc(all, func(m mutant) bool {
			return !slices.Contains(lines, fmt.Sprintf("%s:%d", filepath.Base(m.file), m.line))
		}), 0
	}
	rng := rand.New(rand.NewPCG(d.seed, 0))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, d.n
}

func run(ctx context.Context, dir, only string, d draw, patience time.Duration) error {
	named := targets()
	if only != "" {
		named = slices.DeleteFunc(named, func(t target) bool { return t.name != only })
	}
	if len(named) == 0 {
		return fmt.Errorf("no target is named %q", only)
	}
	for _, t := range named {
		if err := attempt(ctx, dir, t, d, patience); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// attempt tries the drawn mutants of a target and prints the survivors.
func attempt(ctx context.Context, dir string, t target, d draw, patience time.Duration) error {
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
	places := len(all)
	drawn, enough := d.of(all)
	var tried, killed, timedOut int
	for _, m := range drawn {
		if enough > 0 && tried == enough {
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
	fmt.Printf("%s: mutants=%d killed=%d (timed out %d) survived=%d of %d places\n", t.name, tried, killed, timedOut, tried-killed, places)
	return nil
}
