package runfolder

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// ErrNotKept is returned, wrapped, when a trajectory is known and its tokens are stored nowhere any more.
var ErrNotKept = errors.New("it is not kept")

// mostBatches is how many batches a batchCache holds.
const mostBatches = 4

// batchCache holds the batches that were read last, for the next question about them.
type batchCache struct {
	mu  sync.Mutex
	all []cachedBatch
}

// cachedBatch is the batch of a step, whose hash changes when the step is done again.
type cachedBatch struct {
	step       int64
	hash       string
	deliveries []schemas.Delivery
}

// findBatch returns a cached batch; nil where it is not cached.
func (c *batchCache) findBatch(step int64, hash string) []schemas.Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.all {
		if b.step == step && b.hash == hash {
			return b.deliveries
		}
	}
	return nil
}

// addBatch caches a batch in place of the oldest.
func (c *batchCache) addBatch(b cachedBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all = append(c.all, b); len(c.all) > mostBatches {
		c.all = c.all[1:]
	}
}

// readBatch returns the trajectories that a step used up, from the copy that the trainer keeps. ErrNotKept is returned when there is no
// copy any more.
func (f *Folder) readBatch(step int64) ([]schemas.Delivery, error) {
	line := f.Steps.findStepLine(step)
	if line == nil || line.batch == nil {
		return nil, fmt.Errorf("batch of step %d: %w", step, ErrNotKept)
	}
	if cached := f.batches.findBatch(step, line.batch.SHA256); cached != nil {
		return cached, nil
	}
	all, err := checkpoint.ReadBatch(f.Checkpoints, &checkpoint.Record{Step: step, Batch: line.batch})
	if errors.Is(err, checkpoint.ErrNoBatch) {
		err = fmt.Errorf("batch of step %d: %w", step, ErrNotKept)
	}
	if err != nil {
		return nil, err
	}
	f.batches.addBatch(cachedBatch{step, line.batch.SHA256, all})
	return all, nil
}

// fromBatch returns a trajectory that a step used up.
func (f *Folder) fromBatch(step int64, id string) (*schemas.Trajectory, error) {
	all, err := f.readBatch(step)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.Trajectory != nil && d.Trajectory.ID == id {
			return d.Trajectory, nil
		}
	}
	return nil, fmt.Errorf("trajectory %s in the batch of step %d: %w", id, step, ErrNotKept)
}
