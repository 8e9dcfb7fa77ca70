package checkpoint

import "time"

// Schedule decides which checkpoints are full. The others are light: their steps are learnt again at a start.
type Schedule struct {
	cfg Config
	// steps is the last step. again reports whether steps can be learnt again: to the bit, or so near the published version that its weights
	// take the place of those that were learnt.
	steps int64
	again bool
	// light is set while the newest checkpoint is a light one.
	light bool
	// step, at and cost are those of the newest full checkpoint that this process has written; a zero cost where it has written none.
	step int64
	at   time.Time
	cost time.Duration
}

// NewSchedule is the schedule of a trainer whose last step is steps, and whose steps can be learnt again, or not.
func NewSchedule(cfg Config, steps int64, again bool) Schedule {
	return Schedule{cfg: cfg, steps: steps, again: again}
}

// IsFullDue reports whether the checkpoint of a step is to be full. A start finds a full one before any light one, since the first is full
// and a start makes the newest full.
func (s *Schedule) IsFullDue(step int64, now time.Time) bool {
	switch every := int64(s.cfg.Every); {
	case !s.again, step == 0, step >= s.steps, every > 0 && step%every == 0:
		return true
	case s.cfg.FullEvery > 0:
		return step-s.step >= s.cfg.FullEvery
	case s.cfg.FullShare == 0:
		return false
	}
	// A process that has not written any does not know what one costs.
	return s.cost == 0 || s.cost.Seconds() <= s.cfg.FullShare*now.Sub(s.at).Seconds()
}

// IsLight reports whether the newest checkpoint is a light one.
func (s *Schedule) IsLight() bool { return s.light }

// GoOn notes the newest checkpoint of a store that is gone on from.
func (s *Schedule) GoOn(state *State) { s.light = state.Light }

// NoteSaved notes that a checkpoint was written, and how long it took.
func (s *Schedule) NoteSaved(state *State, now time.Time, took time.Duration) {
	if s.light = state.Light; !s.light {
		s.NoteFull(state.Step, now, took)
	}
}

// NoteFull notes that the checkpoint of a step is a full one now, and how long it took.
func (s *Schedule) NoteFull(step int64, now time.Time, took time.Duration) {
	s.light, s.step, s.at, s.cost = false, step, now, max(took, 1)
}
