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

// Wait returns when every rank has written its files. One that ends with ctx may be called again.
func (p *pending) Wait(ctx context.Context) ([]gpu.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		if err := p.wait(ctx); err != nil && ctx.Err() != nil {
			return nil, p.named(err)
		}
	}
	if p.err != nil {
		return nil, p.named(p.err)
	}
	return p.files, nil
}

// wait waits for the ranks that have not answered.
func (p *pending) wait(ctx context.Context) error {
	for ; p.at < len(p.calls); p.at++ {
		if _, err := p.calls[p.at].wait(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			if p.err == nil {
				p.err = err
			}
		}
	}
	p.end()
	if p.over = true; p.err == nil {
		p.files, p.err = p.finish()
	}
	return p.err
}

func (p *pending) end() {
	for _, c := range p.calls {
		c.end()
	}
}

func (p *pending) named(err error) error {
	if p.what == "" {
		return err
	}
	return fmt.Errorf("%s: %w", p.what, err)
}
