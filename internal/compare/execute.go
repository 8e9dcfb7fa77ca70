package compare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// Runner trains a run to its end, from wherever it is.
type Runner interface {
	// TrainRun returns after the run was tested, failed, or was asked to stop by the end of ctx. The error of a run that failed is a
	// [*FailedError]; any other error ends the comparison.
	TrainRun(ctx context.Context, r *Run) error
}

// FailedError is returned when a run failed by itself.
type FailedError struct {
	// How is how its process ended, LastWords the last lines of its output.
	How, LastWords string
}

// Error has the last words below how the run ended.
func (e *FailedError) Error() string {
	if e.LastWords == "" {
		return e.How
	}
	return e.How + "\n" + e.LastWords
}

// Outcome is how a run ended in this call, or stands without it.
type Outcome struct {
	*Run
	// State is finished, failed, unfinished for a run that was interrupted, or waiting for a run that was never begun.
	State string `json:"state"`
	// Problem is why a failed run failed, in its last words; "" of other runs.
	Problem string `json:"problem,omitempty"`
}

// The states.
const (
	StateFinished   = "finished"
	StateFailed     = "failed"
	StateUnfinished = "unfinished"
	StateWaiting    = "waiting"
)

// Outcomes are how the runs stand, without training.
func (p *Plan) Outcomes() ([]Outcome, error) {
	out := make([]Outcome, len(p.Runs))
	for i, r := range p.Runs {
		state, err := r.readState()
		if err != nil {
			return nil, err
		}
		out[i] = Outcome{Run: r, State: state}
	}
	return out, nil
}

func (r *Run) readState() (string, error) {
	finished, err := r.isFinished()
	if err != nil {
		return "", fmt.Errorf("run %s: %w", r.Name, err)
	}
	if finished {
		return StateFinished, nil
	}
	records, err := r.records()
	if err != nil || len(records) == 0 {
		return StateWaiting, err
	}
	return StateUnfinished, nil
}

// Execute trains the runs that are not finished, at most parallel at a time, in the order of the plan. A run that fails stays alone: its
// outcome has the reason, and the others go on. After the end of ctx no run is begun, and Execute returns when all that run have stopped.
// Another process that trains the runs is an error. note takes a line for people at the start and end of each run, from one goroutine at
// a time.
func (p *Plan) Execute(ctx context.Context, runner Runner, parallel int, note func(string)) ([]Outcome, error) {
	unlock, err := p.lockFolder()
	if err != nil {
		return nil, err
	}
	defer unlock()
	out, err := p.Outcomes()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	e := &execution{runner: runner, note: note, outcomes: out, stop: stop}
	waiting := make(chan int, len(out))
	for i, o := range out {
		if o.State == StateFinished {
			note(fmt.Sprintf("%s: finished before", o.Name))
			continue
		}
		waiting <- i
	}
	close(waiting)
	var group sync.WaitGroup
	for range max(1, parallel) {
		group.Go(func() {
			for i := range waiting {
				if ctx.Err() == nil {
					e.trainOne(ctx, i)
				}
			}
		})
	}
	group.Wait()
	return out, e.err
}

// execution is the state that the workers of Execute share.
type execution struct {
	runner   Runner
	outcomes []Outcome
	stop     context.CancelCauseFunc

	mu   sync.Mutex
	note func(string)
	err  error // the first error that ended the comparison
}

// trainOne trains a run and records its outcome. Each worker has outcomes of its own.
func (e *execution) trainOne(ctx context.Context, i int) {
	o := &e.outcomes[i]
	e.sayNote(fmt.Sprintf("%s: training (%d of %d)", o.Name, i+1, len(e.outcomes)))
	err := e.runner.TrainRun(ctx, o.Run)
	state, stateErr := o.readState()
	if stateErr != nil {
		err = errors.Join(err, stateErr)
	}
	if err == nil && state != StateFinished && ctx.Err() == nil {
		err = &FailedError{How: "it ended before it was tested"}
	}
	o.State = state
	if failed, alone := errors.AsType[*FailedError](err); alone {
		o.State, o.Problem = StateFailed, failed.Error()
	} else if err != nil {
		e.endComparison(fmt.Errorf("run %s: %w", o.Name, err))
	}
	e.sayNote(fmt.Sprintf("%s: %s", o.Name, o.State))
}

func (e *execution) sayNote(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note(text)
}

// endComparison keeps the first error and begins no further run.
func (e *execution) endComparison(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("the disk is full: free space, and the same command goes on: %w", err)
	}
	if e.err == nil {
		e.err = err
	}
	e.stop(err)
}
