package view

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/knadh/koanf/parsers/yaml"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/operate"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Run is a run to be shown.
type Run struct {
	// Name is the run's.
	Name string
	// Dir is the run's folder, "" where it is not on this machine: then the page shows what the broker tells.
	Dir string
	// Checkpoints is the folder of its checkpoints; "" is Dir/checkpoints.
	Checkpoints string
	// Connect reaches the run's streams, which close leaves; it fails where no broker is up. Live runs are asked for often: an
	// answer that is not at hand within a second is none. nil is a run without a broker.
	Connect func(ctx context.Context) (run *streams.Run, close func(), err error)
	// Noted is the address of the broker that the process with the run's broker noted in the folder, and has not taken back; "" where
	// there is none. nil is no note.
	Noted func() string
	// Chat asks versions of the run; nil where the page cannot.
	Chat Chat
	// Known is what the run's configuration says that acts are held against; nil, and nil as the answer, where nothing is known.
	Known func() *operate.Known
	// Flags are what a command line needs to name the run, such as "--run.name mine".
	Flags string
}

// known is what is known of the run; nil where nothing is.
func (r Run) known() *operate.Known {
	if r.Known == nil {
		return nil
	}
	return r.Known()
}

// noted is where the run's folder says that its broker is; "" where it says nothing.
func (r Run) noted() string {
	if r.Noted == nil {
		return ""
	}
	return r.Noted()
}

// folder is an opened Run.
type folder struct {
	Run
	index   *index
	numbers *numbers
	facts   *facts
	live    live
	crew    crew
	// chatting has room for one question at a time, so that chats cost a run one sequence at most.
	chatting chan struct{}

	mu       sync.Mutex
	decoder  tokenizer.Codec
	decodes  int64 // the step whose tokenizer decoder is
	settings map[string]any
	written  time.Time
	batches  []kept
}

// kept is a batch that was read, for the next question about it.
type kept struct {
	step int64
	hash string
	all  []schemas.Delivery
}

// keptBatches bounds how many batches stay in memory.
const keptBatches = 4

func newFolder(r Run) *folder {
	if r.Checkpoints == "" && r.Dir != "" {
		r.Checkpoints = filepath.Join(r.Dir, "checkpoints")
	}
	f := &folder{Run: r, index: newIndex(r.Checkpoints), numbers: newNumbers(filepath.Join(r.Dir, "metrics.jsonl")), facts: newFacts(r.Checkpoints), decodes: -1, chatting: make(chan struct{}, 1)}
	f.live.connect = r.Connect
	return f
}

// refresh reads what is new in the folder.
func (f *folder) refresh() error {
	if f.Dir == "" {
		return nil
	}
	return errors.Join(f.index.refresh(), f.numbers.refresh(), f.facts.refresh())
}

// setting is a value of the run's config.yaml; nil where there is none.
func (f *folder) setting(path ...string) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := filepath.Join(f.Dir, "config.yaml")
	info, err := os.Stat(file)
	if err != nil {
		return nil
	}
	if f.settings == nil || !info.ModTime().Equal(f.written) {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil
		}
		if f.settings, err = yaml.Parser().Unmarshal(data); err != nil {
			return nil
		}
		f.written = info.ModTime()
	}
	var at any = f.settings
	for _, name := range path {
		section, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = section[name]
	}
	return at
}

// number is a whole number of config.yaml, or otherwise.
func (f *folder) number(otherwise int, path ...string) int {
	switch n := f.setting(path...).(type) {
	case int:
		return n
	case int64:
		return int(n)
	case uint64:
		return int(n)
	case float64:
		return int(n)
	}
	return otherwise
}

// usual is the size of a group where the record does not say it.
func (f *folder) usual() int { return f.number(8, "trainer", "group_size") }

// codec is the tokenizer of the newest checkpoint; nil where there is none.
func (f *folder) codec() (tokenizer.Codec, error) {
	steps, err := checkpoint.Steps(f.Checkpoints)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.decoder != nil {
		return f.decoder, nil // a run keeps its tokenizer
	}
	for _, step := range steps {
		c, err := tokenizer.Open(filepath.Join(checkpoint.StepDir(f.Checkpoints, step), "tokenizer.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since, or a model without one
		}
		if err != nil {
			return nil, err
		}
		f.decoder, f.decodes = c, step
		return c, nil
	}
	return nil, nil
}

// errNotKept says that a trajectory itself is nowhere any more.
var errNotKept = errors.New("it is not kept")

// trajectory is a trajectory that a step used up, from the copy of its batch.
func (f *folder) trajectory(step int64, id string) (*schemas.Trajectory, error) {
	all, err := f.batch(step)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.Trajectory != nil && d.Trajectory.ID == id {
			return d.Trajectory, nil
		}
	}
	return nil, fmt.Errorf("trajectory %s in the batch of step %d: %w", id, step, errNotKept)
}

func (f *folder) batch(step int64) ([]schemas.Delivery, error) {
	line := f.index.stepOf(step)
	if line == nil || line.batch == nil {
		return nil, fmt.Errorf("batch of step %d: %w", step, errNotKept)
	}
	f.mu.Lock()
	for _, k := range f.batches {
		if k.step == step && k.hash == line.batch.SHA256 {
			f.mu.Unlock()
			return k.all, nil
		}
	}
	f.mu.Unlock()
	all, err := checkpoint.ReadBatch(f.Checkpoints, &checkpoint.Record{Step: step, Batch: line.batch})
	if errors.Is(err, checkpoint.ErrNoBatch) {
		err = fmt.Errorf("batch of step %d: %w", step, errNotKept)
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.batches = append(f.batches, kept{step, line.batch.SHA256, all}); len(f.batches) > keptBatches {
		f.batches = f.batches[1:]
	}
	return all, nil
}
