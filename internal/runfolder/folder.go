package runfolder

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Run names a run and its places.
type Run struct {
	// Name is the run's.
	Name string
	// Dir is the run's folder; "" where the folder is not on this machine, so that only the broker can be asked.
	Dir string
	// Checkpoints is the folder of its checkpoints; "" is CheckpointsFolder in Dir.
	Checkpoints string
	// Messages are the stream's messages that the trainer keeps; nil is the archive's folder in Checkpoints.
	Messages messages.Segments
	// Connect opens the run's streams, and leave closes them. It returns an error where no broker answers. A page calls it often: it must
	// return within a second. Nil is a run without a broker.
	Connect func(ctx context.Context) (run *streams.Run, leave func(), err error)
}

// Folder is an open Run. Close it.
type Folder struct {
	Run
	Steps   *Steps
	Metrics *Metrics
	Archive *Archive

	settings settings
	batches  batchCache
	link     link
	crew     crew
	refusals refusals

	mu    sync.Mutex
	codec tokenizer.Codec
	// codecOf is how often the record of steps was forgotten when codec was read.
	codecOf uint64
}

// Open opens a run and reads nothing yet: Refresh does.
func Open(r Run) *Folder {
	if r.Checkpoints == "" && r.Dir != "" {
		r.Checkpoints = filepath.Join(r.Dir, CheckpointsFolder)
	}
	return &Folder{
		Run:      r,
		Steps:    newSteps(r.Checkpoints),
		Metrics:  newMetrics(filepath.Join(r.Dir, MetricsFile)),
		Archive:  newArchive(r.Checkpoints),
		settings: settings{path: filepath.Join(r.Dir, ConfigFile)},
		link:     link{connect: r.Connect},
	}
}

// Refresh reads the lines that were written to the folder since the Refresh before.
func (f *Folder) Refresh() error {
	if f.Dir == "" {
		return nil
	}
	return errors.Join(f.Steps.refreshSteps(), f.Metrics.refreshLines(), f.Archive.refreshEntries())
}

// Close leaves the broker.
func (f *Folder) Close() { f.link.closeLink() }

// Tokenizer returns the tokenizer of the newest checkpoint with a tokenizer; nil where no checkpoint has it.
func (f *Folder) Tokenizer() (tokenizer.Codec, error) {
	steps, err := checkpoint.Steps(f.Checkpoints)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.Steps.timesForgotten()
	if f.codec != nil && f.codecOf == of {
		return f.codec, nil // a run keeps its tokenizer
	}
	for _, step := range steps {
		c, err := tokenizer.Open(filepath.Join(checkpoint.StepDir(f.Checkpoints, step), "tokenizer.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since, or a model without a tokenizer
		}
		if err != nil {
			return nil, err
		}
		f.codec, f.codecOf = c, of
		return c, nil
	}
	return nil, nil
}
