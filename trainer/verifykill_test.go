package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
)

// watchedIn names, in a process that is watched at each of its writes, the folder that it trains in; watchedSeed the file of its key.
// With watchedFull each error is one of a full disk, after which it starts again.
const (
	watchedIn   = "WEIR_TEST_WATCHED_IN"
	watchedSeed = "WEIR_TEST_WATCHED_SEED"
	watchedFull = "WEIR_TEST_WATCHED_FULL"
)

// watchedConfig has everything on that writes to the run's folder: light checkpoints, checkpoints that are written anew within steps, a
// reference policy, batches that make room, both archives.
func watchedConfig(dir string) Config {
	cfg := testConfig(dir)
	cfg.Steps, cfg.Eta, cfg.Depth, cfg.Loss.KL.Coef = 9, 2, 2, 0.1
	cfg.Checkpoint.FullEvery, cfg.Checkpoint.Messages, cfg.Checkpoint.Batches = 4, 20, 3
	cfg.Archive.Bytes, cfg.Archive.Samples = 1<<30, 2
	cfg.Archive.Messages.Bytes, cfg.Archive.Required = 1<<30, true
	return cfg
}

// trainWatched trains with a trainer that dies now and then and goes on, and whose record is signed, then fills an archive beyond its bound.
func trainWatched(dir string) error {
	cfg, w := watchedConfig(dir), newWorld(vocab)
	w.noise, w.flat = true, 3
	random := rand.New(rand.NewPCG(3, 1))
	w.crash = func(string) error {
		if random.IntN(150) == 0 {
			return errCrash
		}
		return nil
	}
	for starts := 0; ; starts++ {
		err := startWatched(cfg, w)
		if err == nil && starts > 0 {
			break
		}
		switch {
		case err == nil, errors.Is(err, errCrash):
		case os.Getenv(watchedFull) == "" || starts > 500:
			return err
		case !errors.Is(err, syscall.ENOSPC):
			return fmt.Errorf("the disk was full, and the trainer says: %w", err)
		}
	}
	if os.Getenv(watchedFull) != "" {
		return nil
	}
	now := time.Unix(1700000000, 0)
	a, err := archive.Open(filepath.Join(dir, archive.Folder), archive.Config{Bytes: 4 << 10}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	for i := range 60 {
		a.End(&schemas.Trajectory{ID: fmt.Sprint("late-", i)}, 1, archive.Origin{}, schemas.ReasonZeroVariance, "", cfg.Steps, now)
		if i%2 == 1 { // each part alone
			if err = a.Close(); err == nil {
				a, err = archive.Open(filepath.Join(dir, archive.Folder), archive.Config{Bytes: 4 << 10}, slog.New(slog.DiscardHandler))
			}
			if err != nil {
				return err
			}
		}
	}
	return a.Close()
}

// startWatched trains once, with a signer as the trainer's role has it.
func startWatched(cfg Config, w *world) error {
	signer, err := auditing.NewSigner(w.run, cfg.Checkpoint.Dir, os.Getenv(watchedSeed))
	if err != nil {
		return err
	}
	defer signer.Close()
	var failed error
	err = Run(context.Background(), cfg, Deps{
		Engine: enginetest.BigramOf(gpu.Config{VocabSize: w.vocab}), Stream: w, Prompts: prompts{w.vocab},
		NewEngine: func(c gpu.Config) (gpu.Engine, error) { return enginetest.BigramOf(c), nil },
		After: func(stage string) {
			switch stage {
			case "record":
				failed = errors.Join(failed, signer.Sign())
			case "renew", "complete":
				failed = errors.Join(failed, signer.SignRewritten())
			}
		},
		Rewrites: func(step int64, before, chain string) {
			failed = errors.Join(failed, signer.SignAhead(step, before, chain))
		},
	})
	if os.Getenv(watchedFull) != "" {
		return err // the role reports what it cannot sign, and goes on
	}
	return errors.Join(failed, err)
}
