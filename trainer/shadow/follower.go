package shadow

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/trainer/checkpoint"
)

const (
	// pollEvery is how often the run's record is looked at: a stat, and a read where it has changed.
	pollEvery = 200 * time.Millisecond
	// waitReport is the time without a step after which the log reports the wait; it does so again each time that the time has doubled.
	waitReport = time.Minute
)

// errNoMore is returned by nextLine where the run has no further step and the follower does not wait.
var errNoMore = errors.New("the run has no further step")

// follower reads the record of a run that may go on meanwhile.
type follower struct {
	dir  string
	once bool
	log  *slog.Logger
	// step is the last step whose line was returned, and offset where that line begins: it may be written anew until the next follows it.
	step   int64
	offset int64
	// batch is the hash of that step's batch; "" where that is not known, or there is none.
	batch string
	// size and at are those of the file when it had no further line, damage what was wrong with it then.
	size   int64
	at     time.Time
	damage error
	// remade counts the steps that the run has made again after they were returned.
	remade int64
}

// nextLine waits for the line of the next step that the record has after the last one: mostly the step after it, a later one where lines
// are missing.
func (f *follower) nextLine(ctx context.Context) (*checkpoint.Record, error) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	began, reported := time.Now(), time.Duration(0)
	for {
		r, err := f.readLine()
		if err != nil || r != nil {
			return r, err
		}
		if f.once {
			return nil, errNoMore
		}
		if waited := time.Since(began); waited >= max(waitReport, 2*reported) {
			reported = waited
			f.log.Warn("the run makes no step: the shadow waits", "after_step", f.step, "for", waited.Round(time.Second))
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// readLine returns the next line, nil where there is none yet. A damaged line is an error once the file has not changed since it was seen:
// before, the trainer may have been writing it.
func (f *follower) readLine() (*checkpoint.Record, error) {
	info, err := os.Stat(filepath.Join(f.dir, checkpoint.RecordFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() == f.size && info.ModTime().Equal(f.at):
		return nil, f.damage
	}
	next, found, err := f.scanFrom(f.offset)
	if f.offset > 0 && !found {
		// The run went back to an older checkpoint, and its record was cut.
		next, _, err = f.scanFrom(0)
	}
	f.damage = nil
	if damage, ok := errors.AsType[*checkpoint.Damage](err); ok && next == nil {
		f.damage, err = damage, nil
	}
	if err != nil || next != nil {
		return next, err
	}
	f.size, f.at = info.Size(), info.ModTime()
	return nil, nil
}

// scanFrom reads on from an offset. It returns the line after that of f.step, nil where there is none, and whether the line at the offset
// is of f.step or an earlier step.
func (f *follower) scanFrom(offset int64) (next *checkpoint.Record, found bool, err error) {
	begin := offset
	for line, err := range checkpoint.RecordsFrom(f.dir, offset) {
		if err != nil {
			return nil, found, err
		}
		r := line.Record
		switch {
		case r.Step < f.step:
			found = true
		case r.Step == f.step:
			found = true
			f.offset = begin
			f.compareBatch(r)
		case !found && offset > 0:
			return nil, false, nil
		default:
			f.step, f.offset, f.batch = r.Step, begin, batchHash(r)
			return r, true, nil
		}
		begin = line.End
	}
	return nil, found, nil
}

// compareBatch notes where the run has made the last step again from other trajectories.
func (f *follower) compareBatch(r *checkpoint.Record) {
	now := batchHash(r)
	if f.batch != "" && now != f.batch {
		f.remade++
		f.log.Warn("the run went back and made a step again from other trajectories: the shadow keeps what it learnt", "step", r.Step)
	}
	f.batch = now
}

func batchHash(r *checkpoint.Record) string {
	if r.Batch == nil {
		return ""
	}
	return r.Batch.SHA256
}
