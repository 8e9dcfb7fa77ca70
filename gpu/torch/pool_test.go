package torch_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/torch"
)

// pool lends engines of one backend: a test that closes its engine leaves the processes to the next, which gets them without
// moments and without a gradient, but with whatever weights they have.
type pool struct {
	backend torch.Backend
	mu      sync.Mutex
	idle    map[string][]gpu.Engine
}

func newPool(t *testing.T, b torch.Backend) *pool {
	t.Helper()
	p := &pool{backend: b, idle: map[string][]gpu.Engine{}}
	t.Cleanup(func() {
		for _, all := range p.idle {
			for _, e := range all {
				require.NoError(t, e.Close())
			}
		}
	})
	return p
}

type lent struct {
	gpu.Engine
	pool *pool
}

func (p *pool) engine(t testing.TB, cfg gpu.Config) gpu.Engine {
	t.Helper()
	key := fmt.Sprintf("%+v", cfg)
	p.mu.Lock()
	idle := p.idle[key]
	var e gpu.Engine
	if n := len(idle); n > 0 {
		e, p.idle[key] = idle[n-1], idle[:n-1]
	}
	p.mu.Unlock()
	if e == nil {
		return &lent{engineOf(t, p.backend, cfg), p}
	}
	require.NoError(t, e.ResetOptimizer(t.Context()))
	require.NoError(t, e.Discard(t.Context()))
	return &lent{e, p}
}

func (l *lent) Close() error {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	key := fmt.Sprintf("%+v", l.Config())
	p.idle[key] = append(p.idle[key], l.Engine)
	return nil
}
