package servers

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/consumers"
)

// forgetWeights notes that the server's weights are unknown, and releases the folder of its last weights.
func (s *server) forgetWeights() {
	if s.keeper.have = nil; s.keeper.letGo != nil {
		s.keeper.letGo()
		s.keeper.letGo = nil
	}
}

// rememberWeights is forgetWeights for a server that is taken down: if it has the same weights still when it is brought up again, the load
// after that is verified against them.
func (s *server) rememberWeights() {
	s.forgetFormer()
	if s.keeper.have != nil {
		s.keeper.was, s.keeper.letWasGo = s.keeper.have, s.keeper.letGo
		s.keeper.have, s.keeper.letGo = nil, nil
	}
	s.forgetWeights()
}

// forgetFormer forgets the weights that the server had when it was taken down, and releases their folder.
func (s *server) forgetFormer() {
	if s.keeper.was = nil; s.keeper.letWasGo != nil {
		s.keeper.letWasGo()
		s.keeper.letWasGo = nil
	}
}

// bringTo makes the server serve with a version, whatever state it is in. It holds the folders of the wanted version and of the last
// version until it ends, and the folder that the server then serves with for as long as it does: other servers may take many versions while
// this server starts or loads.
func (s *server) bringTo(ctx context.Context, want *consumers.Snapshot) error {
	s.keeper.anew = s.own != nil && !s.own.isRunning()
	release, there := want.Hold()
	if !there {
		return fmt.Errorf("version %d is gone: newer ones have taken its place", want.Version)
	}
	err := s.bringHeld(ctx, want)
	if s.keeper.have == want {
		release, s.keeper.letGo = s.keeper.letGo, release
		s.forgetFormer()
	}
	if release != nil {
		release()
	}
	return err
}

// bringHeld is bringTo while the version's folder is held.
func (s *server) bringHeld(ctx context.Context, want *consumers.Snapshot) error {
	started, err := s.startProcess(ctx, want)
	if err != nil {
		return err
	}
	if started || !s.isServing() {
		if err := s.awaitHealth(ctx, !started); err != nil {
			return err
		}
	}
	if !s.keeper.probed {
		// A pause that another process left would keep the probe waiting for ever.
		if err := s.controlRequest(ctx, s.speaker.Resume); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		if err := s.examineSettings(ctx, want); err != nil {
			return err
		}
		s.keeper.probed = true
	}
	if started {
		return s.nameFirst(ctx, want)
	}
	return s.swapWeights(ctx, want)
}

// isServing reports whether the server was fit when it was last seen.
func (s *server) isServing() bool {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.state.fit
}

// startProcess starts the process on the wanted version's folder, where it is ours and does not run.
func (s *server) startProcess(ctx context.Context, want *consumers.Snapshot) (bool, error) {
	if s.own == nil || s.own.isRunning() {
		return false, nil
	}
	s.keeper.probed = false
	s.forgetWeights()
	s.forgetFormer()
	s.dropEvidence() // a new process reads every tensor, and ends where a tensor is missing
	dir, err := want.OnDisk()
	if err != nil {
		return false, err
	}
	url, err := s.own.startServer(ctx, dir)
	if err != nil {
		return false, err
	}
	s.pool.mu.Lock()
	s.setAddress(url)
	s.pool.mu.Unlock()
	return true, nil
}

// awaitHealth waits until the server can serve. A server that ran before is asked to resume, since another process may have left it paused:
// the health check of SGLang samples a token, and so does not answer during a pause.
func (s *server) awaitHealth(ctx context.Context, ran bool) error {
	return limitTime(ctx, s.pool.cfg.Server.StartTimeout, "start_timeout", func(ctx context.Context) error {
		tick := time.NewTicker(healthEvery)
		defer tick.Stop()
		var last error
		for {
			if ran {
				_ = s.controlRequest(ctx, s.speaker.Resume) // a server that is not there yet is waited for
			}
			if last = s.controlRequest(ctx, s.speaker.Health); last == nil {
				if s.own != nil && !s.own.isRunning() {
					return s.own.exitFault() // something else answers at its address
				}
				return nil
			}
			var ended <-chan struct{}
			if s.own != nil {
				ended = s.own.endedChannel()
			}
			select {
			case <-ended:
				return s.own.exitFault()
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("not ready: %w: %w", context.Cause(ctx), last)
			}
		}
	})
}

// healthEvery is how often a server that starts is asked whether it is ready.
const healthEvery = 200 * time.Millisecond

// examineSettings refuses a server of another model, or with settings that spoil its samples.
func (s *server) examineSettings(ctx context.Context, want *consumers.Snapshot) error {
	var m Model
	err := s.controlRequest(ctx, func(ctx context.Context) (err error) {
		m, err = s.speaker.Model(ctx)
		return err
	})
	if err != nil {
		if n := Status(err); n == 401 || n == 403 {
			return &SettingError{Setting: "inference.server.api_key and admin_api_key", Err: err}
		}
		return fmt.Errorf("ask for its model: %w", err)
	}
	if s.own != nil {
		if err := s.own.checkOwn(m.Path, s.remote.URL()); err != nil {
			return err
		}
	}
	if err := checkSameModel(m.Path, want.Config); err != nil {
		return err
	}
	if err := s.refuseKeptHead(ctx, want); err != nil {
		return err
	}
	p := s.pool
	// The positions that a server keeps end an episode a few tokens before its limit; no setting frees them.
	if takes := m.MaxTokens + m.Kept; m.MaxTokens > 0 && takes < p.cfg.Longest {
		return &SettingError{Setting: fmt.Sprintf("it takes sequences of %d tokens, and trainer.limits.max_tokens lets episodes grow to %d: "+
			"start it with as many (--max-model-len, --context-length), or lower trainer.limits.max_tokens and the tasks' own", takes, p.cfg.Longest)}
	}
	longest := want.Config.MaxPositions
	if m.MaxTokens > 0 {
		longest = min(longest, m.MaxTokens)
	}
	probe := &probe{
		speaker: s.speaker, vocabulary: want.Config.VocabSize, longest: longest, id: p.nextRequestID, salt: p.nextRequestID() + "-probe",
		timeout: p.cfg.Server.StallTimeout, log: p.log,
	}
	spans, err := probe.runProbe(ctx)
	if err == nil {
		err = s.probeLength(ctx, probe)
	}
	if err != nil {
		return err
	}
	s.keeper.spans = spans
	s.beginTransfers(ctx)
	p.mu.Lock()
	s.state.lengths = lengths{most: m.MaxTokens, kept: m.Kept}
	p.mu.Unlock()
	if m.MaxTokens > 0 {
		p.metrics.MaxTokens.WithLabelValues(s.name).Set(float64(m.MaxTokens))
	}
	return nil
}

// nameFirst names the weights that a process was started with, and admits calls. The process must run: else the name would be given to
// the weights of something else that answers at its address.
func (s *server) nameFirst(ctx context.Context, want *consumers.Snapshot) error {
	if !s.own.isRunning() {
		return s.own.exitFault()
	}
	label := s.pool.labelOf(want.Version)
	if err := s.controlRequest(ctx, func(ctx context.Context) error { return s.speaker.SetLabel(ctx, label) }); err != nil {
		return fmt.Errorf("name the version: %w", err)
	}
	if err := s.checkLabel(ctx, label); err != nil {
		return err
	}
	s.admitCalls(want, 0)
	return nil
}

// admitCalls takes calls for a version that the server has.
func (s *server) admitCalls(want *consumers.Snapshot, paused time.Duration) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	s.keeper.have = want
	if s.state.removed || p.closed {
		return
	}
	if s.state.epoch != nil {
		s.state.epoch.sealEpoch(true)
	}
	s.state.epoch = &epoch{version: want.Version, dir: want.Dir, label: p.labelOf(want.Version), sealed: make(chan struct{})}
	s.state.fit, s.state.swapping, s.state.paused = true, false, paused
	s.state.doubts, s.state.doubt, s.state.fault = 0, nil, nil
	if p.want == want || want.Version > p.version {
		p.version = want.Version
	}
	p.notifyWaiting()
}
