package archive

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/learner"
)

// Writer adds to a store. A single goroutine calls it; a nil Writer keeps nothing.
type Writer struct {
	cfg   Config
	log   *slog.Logger
	parts chan *part
	ended chan struct{}
	once  sync.Once
	// gathering has the trajectories that ended since the last step; skipped counts the trajectories left out.
	gathering *part
	skipped   int
}

// part is the data that the writer's goroutine gets at once.
type part struct {
	step    int64
	at      time.Time
	used    []usedMember
	tokens  *learner.Tokens
	others  []unusedTrajectory
	skipped int
}

// usedMember is a trajectory that a step used up.
type usedMember struct {
	member   batch.Member
	origin   Origin
	baseline bool
	group    int
}

// unusedTrajectory is a trajectory that was not trained on.
type unusedTrajectory struct {
	trajectory *schemas.Trajectory
	sequence   uint64
	origin     Origin
	reason     schemas.Reason
	detail     string
	at         time.Time
}

const (
	// waitingParts bounds the steps that wait to be written; trajectories that come while so many wait are left out.
	waitingParts = 4
	// gatheredOthers is how many trajectories are gathered before they are given to the goroutine although no step has ended.
	gatheredOthers = 256
)

// Open goes on with the store in a folder, making it if need be. It is nil where nothing is to be kept.
func Open(dir string, cfg Config, log *slog.Logger) (*Writer, error) {
	if cfg.Bytes == 0 {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	s, err := openStore(dir, cfg.Bytes)
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	w := &Writer{cfg: cfg, log: log, parts: make(chan *part, waitingParts), ended: make(chan struct{}), gathering: &part{}}
	go func() {
		defer close(w.ended)
		w.writeParts(s)
	}()
	return w, nil
}

// End notes a trajectory that was not trained on; step is the step in hand.
func (w *Writer) End(
	t *schemas.Trajectory, sequence uint64, origin Origin, reason schemas.Reason, detail string, step int64, now time.Time,
) {
	if w == nil || t == nil {
		return
	}
	w.gathering.step = step
	w.gathering.others = append(w.gathering.others, unusedTrajectory{t, sequence, origin, reason, detail, now})
	if len(w.gathering.others) >= gatheredOthers {
		w.sendGathered()
	}
}

// Step notes a step and its batch. tokens may be nil. originOf returns what is known of a message beside its content.
func (w *Writer) Step(step int64, b *batch.Batch, tokens *learner.Tokens, originOf func(sequence uint64) Origin, now time.Time) {
	if w == nil || b == nil {
		return
	}
	p := w.gathering
	p.step, p.at, p.tokens = step, now, tokens
	for g, taken := range b.Groups {
		for _, m := range taken.Members {
			p.used = append(p.used, usedMember{m, originOf(m.Sequence), false, g})
		}
		if taken.Baseline != nil {
			p.used = append(p.used, usedMember{*taken.Baseline, originOf(taken.Baseline.Sequence), true, g})
		}
	}
	w.sendGathered()
}

// sendGathered sends the gathered part to the goroutine; if too many parts wait, the part is dropped and counted.
func (w *Writer) sendGathered() {
	p := w.gathering
	p.skipped, w.gathering = w.skipped, &part{step: p.step}
	select {
	case w.parts <- p:
		w.skipped = 0
	default:
		w.skipped += len(p.used) + len(p.others)
	}
}

// Close writes the rest and ends.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.once.Do(func() {
		if len(w.gathering.others) > 0 {
			w.sendGathered()
		}
		close(w.parts)
	})
	<-w.ended
	return nil
}

// writeParts is the goroutine. After an error, such as a full disk, it goes on with the next part. After an error, such as a full disk, it
// goes on with the next part.
func (w *Writer) writeParts(s *store) {
	failed := false
	for p := range w.parts {
		err := s.addPart(w.cfg, p)
		if err != nil && !failed {
			w.log.Warn("the archive of trajectories is not written: the page will not show what is left out", "dir", s.dir, "err", err)
		}
		failed = err != nil
	}
	if err := s.closeStore(); err != nil && !errors.Is(err, os.ErrClosed) {
		w.log.Warn("close the archive", "err", err)
	}
}
