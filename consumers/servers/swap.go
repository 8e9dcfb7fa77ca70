package servers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/consumers"
)

// swapWeights replaces a running server's weights: it stages the version, holds calls back, pauses, loads, names, reads the name back,
// resumes in any case, sees a token sampled, verifies the weights where this load is to be verified, and admits calls. Where the load
// fails the version before is loaded again, so that the server is fit for that version; where that fails too, or the server does not
// resume, it is unfit.
func (s *server) swapWeights(ctx context.Context, want *consumers.Snapshot) error {
	mode := s.pool.kind.Mode(pauseMode(s.pool.cfg.Swap))
	if !s.keeper.spans || s.keeper.tries > 0 || s.namesLate() {
		mode = Abort
	}
	s.stageVersion(ctx, want)
	defer s.dropStaged(ctx)
	evidence := s.gatherEvidence(ctx)
	defer func() {
		if evidence != nil && evidence != s.keeper.doubted {
			evidence.release()
		}
	}()
	s.holdCalls()
	if s.pool.cfg.Swap == consumers.SwapDrain {
		if err := s.drainCalls(ctx, s.pool.cfg.Server.LoadTimeout); err != nil && ctx.Err() != nil {
			return err
		}
	}
	began := time.Now()
	before := s.keeper.have
	has, err := s.exchangeWeights(ctx, want, mode)
	s.keeper.have = has
	has, err = s.settleSwap(ctx, has, err)
	paused := time.Since(began)
	if has == want && evidence != nil {
		if wrong := s.verifyWeights(ctx, evidence, want); wrong != nil {
			has, err = nil, errors.Join(err, wrong)
		}
	} else if has == want {
		s.keeper.unchecked++
	}
	if has == nil {
		s.keeper.have = nil // which weights it has is not certain
	}
	switch {
	case ctx.Err() != nil: // nobody waits for it any more
	case has == nil:
		s.takeDown(err)
	case err != nil && has == before, err == nil:
		s.admitCalls(has, paused)
	}
	return err
}

// settleSwap ends the pause, and returns the version that the server samples with: nil where it does not resume or does not sample.
func (s *server) settleSwap(ctx context.Context, has *consumers.Snapshot, err error) (*consumers.Snapshot, error) {
	if again := s.resumeSampling(ctx); again != nil {
		return nil, errors.Join(err, again)
	}
	if has == nil {
		return nil, err
	}
	if seen := s.seeSample(ctx, s.pool.labelOf(has.Version)); seen != nil {
		return nil, errors.Join(err, seen)
	}
	return has, err
}

// holdCalls admits no further call.
func (s *server) holdCalls() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.state.swapping = true
}

// exchangeWeights loads a version while the server is paused, and returns which version it has then: nil where that is not certain.
func (s *server) exchangeWeights(ctx context.Context, want *consumers.Snapshot, mode Mode) (has *consumers.Snapshot, err error) {
	p, before := s.pool, s.keeper.have
	if err := s.controlRequest(ctx, func(ctx context.Context) error { return s.speaker.Pause(ctx, mode) }); err != nil {
		// Nothing is loaded yet: it is as it was, if it has the label of before.
		if before != nil && s.checkLabel(ctx, p.labelOf(before.Version)) == nil {
			has = before
		}
		return has, fmt.Errorf("pause: %w", err)
	}
	if mode == Abort {
		s.cutUnbegunCalls()
		if err := s.drainCalls(ctx, p.cfg.Server.ControlTimeout); err != nil {
			s.cutCalls(errCut)
		}
	}
	if before != nil {
		if err := s.checkLabel(ctx, p.labelOf(before.Version)); err != nil {
			return nil, err
		}
	}
	s.sealCurrent(mode != Abort)
	err = s.loadWanted(ctx, want, mode)
	if err == nil {
		return want, nil
	}
	if before == nil || ctx.Err() != nil {
		return nil, err
	}
	if again := s.loadVersion(ctx, before, mode); again != nil {
		return nil, errors.Join(err, fmt.Errorf("load version %d again: %w", before.Version, again))
	}
	return before, err
}

// errCut ends a call that a server did not abort with the others.
var errCut = errors.New("the call was not aborted with the others")

// sealCurrent seals the epoch: its tokens are vouched for, and later tokens are not of it. crossed is whether calls go on after it.
func (s *server) sealCurrent(crossed bool) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.state.epoch != nil {
		s.state.epoch.crossed = crossed
		s.state.epoch.sealEpoch(true)
	}
}

// loadVersion has the server load a version, and reads back which it has.
func (s *server) loadVersion(ctx context.Context, want *consumers.Snapshot, mode Mode) error {
	label := s.pool.labelOf(want.Version)
	dir, err := want.OnDisk()
	if err != nil {
		return err
	}
	err = limitTime(ctx, s.pool.cfg.Server.LoadTimeout, "load_timeout", func(ctx context.Context) error {
		return s.speaker.Load(ctx, dir, label, mode)
	})
	if err != nil {
		s.mendFailedLoad(ctx)
		return fmt.Errorf("load %s: %w", dir, err)
	}
	return s.checkLabel(ctx, label)
}

// drainCalls waits until no call runs here.
func (s *server) drainCalls(ctx context.Context, longest time.Duration) error {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	for {
		s.pool.mu.Lock()
		left, changed := len(s.state.leases), s.pool.changed
		s.pool.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return fmt.Errorf("%d calls still run after %s", left, longest)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// cutCalls ends the calls that run here; they go on with the tokens that are vouched for.
func (s *server) cutCalls(cause error) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for l := range s.state.leases {
		l.cancel(cause)
	}
}

// cutUnbegunCalls ends the calls of which nothing has come: a call that reached the server after the pause was not aborted with the
// others, and would wait there for the next weights.
func (s *server) cutUnbegunCalls() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for l := range s.state.leases {
		if !l.began.Load() {
			l.cancel(errCut)
		}
	}
}

// maxResumes is how often a server is asked to resume before it is unfit.
const maxResumes = 5

// resumeSampling ends the pause, whatever became of the swap, and even when ctx has ended: a server that stays paused is of no use to
// its next user.
func (s *server) resumeSampling(ctx context.Context) (err error) {
	own := context.WithoutCancel(ctx)
	for i := range maxResumes {
		if i > 0 {
			s.waitForWork(ctx, nil, firstTry<<i)
			if ctx.Err() != nil {
				break
			}
		}
		if err = s.controlRequest(own, s.speaker.Resume); err == nil {
			return nil
		}
		if s.own != nil && !s.own.isRunning() {
			break
		}
	}
	return fmt.Errorf("resume: %w", err)
}

// seeSample is nil when the server samples again, with the weights of a label. A resume that was lost is repeated.
func (s *server) seeSample(ctx context.Context, label string) (err error) {
	for range maxResumes {
		var a *Answer
		err = limitTime(ctx, s.pool.cfg.Server.ControlTimeout, "control_timeout", func(ctx context.Context) (err error) {
			a, err = s.speaker.Generate(ctx, &Query{
				ID: s.pool.nextRequestID(), Salt: label, Tokens: []int32{0}, MaxTokens: 1, Temperature: 1,
			}, func() {})
			return err
		})
		if err == nil {
			return checkAnswerLabel(a, label)
		}
		if ctx.Err() != nil {
			return err
		}
		if again := s.controlRequest(ctx, s.speaker.Resume); again != nil {
			return errors.Join(err, again)
		}
	}
	return fmt.Errorf("it does not generate after the swap: %w", err)
}

// checkAnswerLabel refuses an answer that names other weights. An answer that names none is no fault.
func checkAnswerLabel(a *Answer, label string) error {
	for _, span := range a.Spans {
		if span.Label != label {
			return fmt.Errorf("%w: it samples with weights %q, and %q were loaded", errReplaced, span.Label, label)
		}
	}
	if a.Label != "" && a.Label != label {
		return fmt.Errorf("%w: it samples with weights %q, and %q were loaded", errReplaced, a.Label, label)
	}
	return nil
}
