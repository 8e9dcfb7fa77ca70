package servers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/consumers"
)

// swap replaces a running server's weights: it holds calls back, pauses, loads, names, reads the name back, resumes in any
// case, sees one token sampled, verifies the weights where this load is one of those, and admits calls. Where the load fails the version
// before is loaded again, so that the server is fit for what it had; where that fails too, or the server does not resume, it is unfit.
func (s *server) swap(ctx context.Context, want *consumers.Snapshot) error {
	mode := s.pool.kind.Mode(modeOf(s.pool.cfg.Swap))
	if !s.keeper.spans || s.keeper.tries > 0 {
		mode = Abort
	}
	evidence := s.gatherEvidence(ctx)
	defer func() {
		if evidence != nil && evidence != s.keeper.doubted {
			evidence.release()
		}
	}()
	s.hold()
	if s.pool.cfg.Swap == consumers.SwapDrain {
		if err := s.drain(ctx, s.pool.cfg.Server.LoadTimeout); err != nil && ctx.Err() != nil {
			return err
		}
	}
	began := time.Now()
	before := s.keeper.have
	has, err := s.exchange(ctx, want, mode)
	s.keeper.have = has
	has, err = s.settle(ctx, has, err)
	paused := time.Since(began)
	if has == want && evidence != nil {
		if wrong := s.verify(ctx, evidence, want); wrong != nil {
			has, err = nil, errors.Join(err, wrong)
		}
	}
	switch {
	case ctx.Err() != nil: // whoever waits for it is gone
	case has == nil:
		s.down(err)
	case err != nil && has == before, err == nil:
		s.admit(has, paused)
	}
	return err
}

// settle ends the pause, and returns the version that the server samples with: nil where it does not resume or does not sample.
func (s *server) settle(ctx context.Context, has *consumers.Snapshot, err error) (*consumers.Snapshot, error) {
	if again := s.resume(ctx); again != nil {
		return nil, errors.Join(err, again)
	}
	if has == nil {
		return nil, err
	}
	if seen := s.see(ctx, s.pool.label(has.Version)); seen != nil {
		return nil, errors.Join(err, seen)
	}
	return has, err
}

// hold admits no further call.
func (s *server) hold() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.state.swapping = true
}

// exchange loads a version while the server is paused, and returns which version it has then: nil where that is not certain.
func (s *server) exchange(ctx context.Context, want *consumers.Snapshot, mode Mode) (has *consumers.Snapshot, err error) {
	p, before := s.pool, s.keeper.have
	if err := s.control(ctx, func(ctx context.Context) error { return s.speaker.Pause(ctx, mode) }); err != nil {
		// Nothing is loaded yet: it is as it was, if it says so.
		if before != nil && s.has(ctx, p.label(before.Version)) == nil {
			has = before
		}
		return has, fmt.Errorf("pause: %w", err)
	}
	if mode == Abort {
		s.cutUnbegun()
		if err := s.drain(ctx, p.cfg.Server.ControlTimeout); err != nil {
			s.cut(errCut)
		}
	}
	if before != nil {
		if err := s.has(ctx, p.label(before.Version)); err != nil {
			return nil, err
		}
	}
	s.over()
	err = s.load(ctx, want, mode)
	if err == nil {
		return want, nil
	}
	if before == nil || ctx.Err() != nil {
		return nil, err
	}
	if again := s.load(ctx, before, mode); again != nil {
		return nil, errors.Join(err, fmt.Errorf("load version %d again: %w", before.Version, again))
	}
	return before, err
}

// errCut ends a call that a server did not abort as it was told to.
var errCut = errors.New("the call was not aborted with the others")

// over seals the epoch: what was sampled in it is vouched for, and what comes is not of it.
func (s *server) over() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.state.epoch != nil {
		s.state.epoch.seal(true)
	}
}

// load has the server load a version, and reads back which it has.
func (s *server) load(ctx context.Context, want *consumers.Snapshot, mode Mode) error {
	label := s.pool.label(want.Version)
	err := within(ctx, s.pool.cfg.Server.LoadTimeout, "load_timeout", func(ctx context.Context) error {
		return s.speaker.Load(ctx, want.Dir, label, mode)
	})
	if err != nil {
		return fmt.Errorf("load %s: %w", want.Dir, err)
	}
	return s.has(ctx, label)
}

// drain waits until no call runs here.
func (s *server) drain(ctx context.Context, longest time.Duration) error {
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

// cut ends the calls that run here; they go on with what was vouched for.
func (s *server) cut(cause error) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for l := range s.state.leases {
		l.cancel(cause)
	}
}

// cutUnbegun ends the calls of which nothing has come: one that reached the server after the pause was not aborted with the
// others, and would wait there for the next weights.
func (s *server) cutUnbegun() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for l := range s.state.leases {
		if !l.began.Load() {
			l.cancel(errCut)
		}
	}
}

// maxResumes is how often a server is told to resume before it is unfit.
const maxResumes = 5

// resume ends the pause, whatever became of the swap, and even when ctx has ended: a server that stays paused is of no use to
// whoever comes next.
func (s *server) resume(ctx context.Context) (err error) {
	own := context.WithoutCancel(ctx)
	for i := range maxResumes {
		if i > 0 {
			s.wait(ctx, nil, firstTry<<i)
			if ctx.Err() != nil {
				break
			}
		}
		if err = s.control(own, s.speaker.Resume); err == nil {
			return nil
		}
		if s.own != nil && !s.own.running() {
			break
		}
	}
	return fmt.Errorf("resume: %w", err)
}

// see is nil when the server samples again, with the weights of a label. A resume that was lost is repeated.
func (s *server) see(ctx context.Context, label string) (err error) {
	for range maxResumes {
		var a *Answer
		err = within(ctx, s.pool.cfg.Server.ControlTimeout, "control_timeout", func(ctx context.Context) (err error) {
			a, err = s.speaker.Generate(ctx, &Query{
				ID: s.pool.nextID(), Salt: label, Tokens: []int32{0}, MaxTokens: 1, Temperature: 1,
			}, func() {})
			return err
		})
		if err == nil {
			return saysLabel(a, label)
		}
		if ctx.Err() != nil {
			return err
		}
		if again := s.control(ctx, s.speaker.Resume); again != nil {
			return errors.Join(err, again)
		}
	}
	return fmt.Errorf("it does not generate after the swap: %w", err)
}

// saysLabel refuses an answer that names other weights. An answer that names none is no fault.
func saysLabel(a *Answer, label string) error {
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
