package torch

import (
	"context"
	"fmt"
	"sync"

	"github.com/weir-rl/weir/gpu"
)

// pending is files that the ranks are writing.
type pending struct {
	calls  []*call
	what   string
	finish func() (gpu.Written, error)

	mu sync.Mutex
	// at is how many ranks have answered.
	at    int
	over  bool
	files gpu.Written
	err   error
}

// Wait returns when every rank has written its files. If it ends with ctx it may be called again.
func (p *pending) Wait(ctx context.Context) ([]gpu.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		if err := p.waitRanks(ctx); err != nil && ctx.Err() != nil {
			return nil, p.label(err)
		}
	}
	if p.err != nil {
		return nil, p.label(p.err)
	}
	return p.files, nil
}

// waitRanks waits for the ranks that have not answered.
func (p *pending) waitRanks(ctx context.Context) error {
	for ; p.at < len(p.calls); p.at++ {
		if _, err := p.calls[p.at].nextAnswer(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			if p.err == nil {
				p.err = err
			}
		}
	}
	p.endCalls()
	if p.over = true; p.err == nil {
		p.files, p.err = p.finish()
	}
	return p.err
}

func (p *pending) endCalls() {
	for _, c := range p.calls {
		c.endCall()
	}
}

func (p *pending) label(err error) error {
	if p.what == "" {
		return err
	}
	return fmt.Errorf("%s: %w", p.what, err)
}
