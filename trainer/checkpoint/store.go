package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/filelock"
)

// Network is a model with its optimizer, which writes its own files; a gpu.Engine is a Network.
type Network interface {
	Config() gpu.Config
	Export(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error)
	SaveOptimizer(ctx context.Context, dir string) (steps int64, err error)
}

// Config configures which checkpoints and batches are kept, and where.
type Config struct {
	// Dir is the store's folder.
	Dir string `koanf:"dir" default:"checkpoints"`
	// Keep is how many of the newest checkpoints stay, and how many of the newest full ones; a run can go back to any of the newest.
	Keep int `koanf:"keep" default:"2" above:"0"`
	// FullEvery is how many steps lie between full checkpoints, which hold weights and optimizer; the checkpoints between are light, and a
	// start learns their steps again from the batches. 1 makes every checkpoint full, 0 as many as FullShare allows. The first and the last
	// checkpoint of a run are full. All are where adapters are trained by an engine that does not repeat to the bit.
	FullEvery int64 `koanf:"full_every" min:"0"`
	// FullShare is the share of the run's time that full checkpoints may take where FullEvery is 0. A start learns again at most the steps
	// of the time that one of them takes, divided by the share. 0 writes none by time.
	FullShare float64 `koanf:"full_share" default:"0.02" min:"0" max:"1"`
	// MaxDrift bounds the drift of steps that are learnt again by an engine that does not repeat to the bit: their distance from the version
	// that was published, as a share of the distance that the steps had moved it. A start fails above it. Below, the published weights take
	// the place of those that were learnt again. 0 makes all checkpoints of such an engine full.
	MaxDrift float64 `koanf:"max_drift" default:"0.2" min:"0"`
	// Every keeps each checkpoint whose step is a multiple of it for good, for people, and makes it full; 0 keeps none for good. A full
	// checkpoint that is no larger than BatchBytes stays without it while the batches of all later steps are kept, so that these steps can
	// be replayed: the oldest, and another for each half of BatchBytes.
	Every int `koanf:"every" min:"0"`
	// Messages is how many messages may end without being trained on before the last checkpoint is written anew, so that the stream can be
	// purged of them.
	Messages int `koanf:"messages" default:"1024" above:"0"`
	// Batches is how many of the newest batches are kept whole, for audits: -1 is as many as BatchBytes has room for, 0 none. Batches that
	// a start would learn again stay beyond both bounds.
	Batches int `koanf:"batches" default:"-1" min:"-1"`
	// BatchBytes bounds the size of the kept batches on the disk, in bytes: the oldest are removed first, and the newest always stays. 0 is
	// no bound.
	BatchBytes int64 `koanf:"batch_bytes" default:"1073741824" min:"0"`
}

// DefaultConfig has the defaults.
func DefaultConfig() Config { return check.Default[Config]() }

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Given("dir", c.Dir, "name a folder"),
		check.Fields(c),
	)
}

// Store is a folder of checkpoints, held by a single process.
type Store struct {
	cfg    Config
	unlock func() error
	// After is called when a part of Save is done, with its name: model, critic, state, seal, rename, record, prune. Tests end the process
	// in it; it may be nil.
	After func(stage string)
	// Rewrites is called before the newest step's checkpoint and line are written anew, with the chains of the line that is there and of the
	// new line: the signer of the record signs the new line first, so that a kill leaves no line without its signature. It may be nil.
	Rewrites func(step int64, before, chain string)
	// marks are the marks of the checkpoints on disk that a run can go back to, by step.
	marks map[int64]mark
	// before and tail are where the line of the last step begins and ends in the record; tail is nil until that is known.
	before Tail
	tail   *Tail
	// kept are the batches on disk, oldest first.
	kept []keptFile
}

// mark names the messages of a stream that a checkpoint needs: every message after low.
type mark struct {
	stream  string
	created time.Time
	losses  int64
	low     uint64
}

func streamMark(s *State) mark { return mark{s.Stream, s.Created, s.Losses, s.Ledger.Low} }

// ErrLocked is returned by Open when another trainer holds the folder.
var ErrLocked = errors.New("the checkpoint folder is in use by another trainer, or by weir fork")

// Open takes the folder, making it if need be. Files that an earlier process left half-written are removed.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("open checkpoints: %w", err)
	}
	unlock, err := filelock.Hold(filepath.Join(cfg.Dir, lockFile), ErrLocked)
	if err != nil {
		return nil, fmt.Errorf("open checkpoints %s: %w", cfg.Dir, err)
	}
	s := &Store{cfg: cfg, unlock: unlock, marks: map[int64]mark{}}
	err = s.removeHalfWritten()
	if err == nil {
		s.kept, err = listKept(cfg.Dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open checkpoints %s: %w", cfg.Dir, err), unlock())
	}
	return s, nil
}

// Close gives the folder back.
func (s *Store) Close() error { return s.unlock() }

// Dir is the store's folder.
func (s *Store) Dir() string { return s.cfg.Dir }

// IsStore reports whether a trainer has ever held a folder of checkpoints.
func IsStore(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, lockFile))
	return err == nil
}

// Scratch is a folder of a name within the store for files that only this process needs: it may be there or not, and the next
// Open removes it.
func (s *Store) Scratch(name string) string { return filepath.Join(s.cfg.Dir, tmpPrefix+name) }

// Path is the folder of a step's checkpoint.
func (s *Store) Path(step int64) string { return StepDir(s.cfg.Dir, step) }

// StepDir is the folder of a step's checkpoint in a store.
func StepDir(dir string, step int64) string {
	return filepath.Join(dir, fmt.Sprintf("step_%06d", step))
}

// Steps lists the steps that a store has a checkpoint of, complete or not, newest first.
func Steps(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var steps []int64
	for _, e := range entries {
		name, found := strings.CutPrefix(e.Name(), "step_")
		step, err := strconv.ParseInt(name, 10, 64)
		if found && err == nil && e.IsDir() {
			steps = append(steps, step)
		}
	}
	slices.SortFunc(steps, func(a, b int64) int { return cmp.Compare(b, a) })
	return steps, nil
}

// removeHalfWritten removes the files that a killed process left half-written, here and among the batches. An old folder whose replacement
// never came into place is put back.
func (s *Store) removeHalfWritten() error {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(s.cfg.Dir, e.Name())
		if name, ok := strings.CutPrefix(e.Name(), oldPrefix); ok {
			final := filepath.Join(s.cfg.Dir, name)
			if _, err := os.Stat(final); errors.Is(err, fs.ErrNotExist) {
				if err := os.Rename(path, final); err != nil {
					return err
				}
				continue
			}
		} else if !isHalfWritten(e.Name()) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	half, err := filepath.Glob(filepath.Join(s.cfg.Dir, batchesDir, "*"+tmpSuffix))
	if err != nil {
		return err
	}
	for _, path := range half {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return SyncDir(s.cfg.Dir)
}

// isHalfWritten reports whether an entry of the store is a file or a folder that was being written. An earlier build wrote
// "..tmp-step_000007.tmp-123" beside ".tmp-step_000007".
func isHalfWritten(name string) bool {
	return strings.HasPrefix(strings.TrimLeft(name, "."), strings.TrimLeft(tmpPrefix, ".")) && strings.HasPrefix(name, ".") ||
		strings.HasSuffix(name, tmpSuffix)
}
