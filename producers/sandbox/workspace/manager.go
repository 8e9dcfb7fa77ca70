package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
)

// Manager keeps the workspaces of a process's episodes. Its pool is opened by Ready, or with the first workspace.
type Manager struct {
	cfg sandbox.Config
	// wanted is true when tools need workspaces, programs when something starts programs of its own.
	wanted, programs atomic.Bool
	// warm are workspaces that are ready to be used, once each.
	warm chan *Workspace
	// filling is held by the goroutine that starts them.
	filling chan struct{}
	ctx     context.Context //nolint:containedctx // of what the manager starts for itself, until Close
	cancel  context.CancelFunc
	filler  sync.WaitGroup

	opening sync.Mutex // held while the pool is opened
	mu      sync.Mutex
	// loopback is true when the programs have ports. checks, which run once, return the programs' faults.
	loopback bool
	checks   []func() error
	pool     *sandbox.Pool
	places   map[string]*place
	// lent are the places of the operator's programs, by episode.
	lent   map[string][]*lent
	closed bool
}

// place is an episode's, with or without a workspace yet.
type place struct {
	mu    sync.Mutex
	users int
	// files are written into each workspace of the episode as it starts, by name.
	files map[string]string
	w     *Workspace
	over  bool
	// kept is the episode's place in the pool, from its first workspace until it leaves: also while no workspace runs there. nil before.
	kept *sandbox.Place
	// fresh is the workspace, started in advance, that came with the place, until the first use; nil for none.
	fresh *Workspace
	// taking is held by whoever takes the place.
	taking producers.PlaceLock
}

// New makes a manager; nothing is started.
func New(cfg sandbox.Config) *Manager {
	m := &Manager{cfg: cfg, warm: make(chan *Workspace, cfg.Warm), filling: make(chan struct{}, 1), places: map[string]*place{}, lent: map[string][]*lent{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Claim records that a tool will need workspaces. A process that runs no episode never calls Ready, and needs no sandbox.
func (m *Manager) Claim() { m.wanted.Store(true) }

// ClaimPrograms records that programs of the operator's will be started in the manager's pool, beside workspaces, and whether
// they have ports: see [sandbox.Spec]. check, which may be nil, returns the programs' faults: Ready of a process that will
// start them returns these.
func (m *Manager) ClaimPrograms(loopback bool, check func() error) {
	m.programs.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loopback = m.loopback || loopback
	if check != nil {
		m.checks = append(m.checks, check)
	}
}

// Claimed reports whether anything will need a sandbox.
func (m *Manager) Claimed() bool { return m.wanted.Load() || m.programs.Load() }

// Ready opens the pool, or refuses with the cause and the remedy.
func (m *Manager) Ready(ctx context.Context) (*sandbox.Pool, error) {
	m.opening.Lock()
	defer m.opening.Unlock()
	m.mu.Lock()
	pool, closed, checks := m.pool, m.closed, m.checks
	var needs []sandbox.Need
	if m.loopback {
		needs = append(needs, sandbox.Loopback)
	}
	m.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return nil, err
		}
	}
	if pool != nil {
		return pool, pool.Lacks(needs...)
	}
	pool, err := sandbox.Open(ctx, m.cfg, needs...)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errors.Join(errClosed, pool.Close())
	}
	m.pool = pool
	m.fillReserve()
	return pool, nil
}

// Leave gives the place up; with the last the workspace ends.
func (m *Manager) Leave(episode string) {
	m.mu.Lock()
	p := m.places[episode]
	if p == nil {
		m.mu.Unlock()
		return
	}
	p.users--
	last := p.users == 0
	if last {
		delete(m.places, episode)
	}
	m.mu.Unlock()
	if last {
		p.endPlace()
	}
}

func (p *place) endPlace() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, w := range p.listOpen() {
		w.Close()
	}
	if p.kept != nil {
		p.kept.Leave()
	}
}

// Get is the episode's workspace, started where there is none. fresh is true where the episode's earlier workspace is gone, and
// its files with it: the episode keeps its place in the pool, and waits for no other.
func (m *Manager) Get(ctx context.Context, episode string) (w *Workspace, fresh bool, err error) {
	p, err := m.keepPlace(ctx, episode, 0)
	if err != nil {
		return nil, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil, false, closedEpisodeError(episode)
	}
	if p.w != nil && !p.w.Gone() {
		return p.w, false, nil
	}
	fresh = p.w != nil
	if w, err = p.openKept(ctx); err != nil {
		return nil, false, err
	}
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		if err := w.WriteFile(ctx, name, []byte(p.files[name])); err != nil {
			w.Close()
			return nil, false, fmt.Errorf("%w: the world's files: %w", producers.ErrUnavailable, err)
		}
	}
	p.w = w
	return w, fresh, nil
}

// openKept is a workspace on the episode's place in the pool: the workspace that came with it, or a new one. The place is locked, and its
// workspace is gone.
func (p *place) openKept(ctx context.Context) (*Workspace, error) {
	w := p.fresh
	if p.fresh = nil; w != nil && !w.Gone() {
		return w, nil
	}
	return openWorkspace(ctx, p.kept)
}

// listOpen returns the place's workspaces. The place is locked.
func (p *place) listOpen() []*Workspace {
	return slices.DeleteFunc([]*Workspace{p.w, p.fresh}, func(w *Workspace) bool { return w == nil })
}

func closedEpisodeError(episode string) error {
	return fmt.Errorf("%w: episode %q was closed", producers.ErrUnavailable, episode)
}

// Join keeps a place for an episode, whose workspace begins with the files of its world, until Leave was called as often. It
// starts nothing. Of a world it reads {"files": {"NAME": "TEXT"}}, and leaves the rest to other tools.
func (m *Manager) Join(s producers.Session) error {
	files, err := filesOf(s.World)
	if err != nil {
		return fmt.Errorf("open the workspace of episode %s: the world's files: %w", s.Episode, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.places[s.Episode]
	if p == nil {
		p = &place{files: files, taking: producers.NewPlaceLock()}
		m.places[s.Episode] = p
	}
	p.users++
	return nil
}

func filesOf(world json.RawMessage) (map[string]string, error) {
	var fields struct {
		Files json.RawMessage `json:"files"`
	}
	if json.Unmarshal(world, &fields) != nil || !bytes.HasPrefix(fields.Files, []byte("{")) {
		return nil, nil //nolint:nilerr // a world of another tool's, or none
	}
	var files map[string]string
	if err := json.Unmarshal(fields.Files, &files); err != nil {
		return nil, errors.New("want an object of texts by the names of files")
	}
	for name := range files {
		if !filepath.IsLocal(name) || name == "." {
			return nil, fmt.Errorf("%q: want a name relative to the working folder", name)
		}
	}
	return files, nil
}

// Open is the episode's workspace if it has a running workspace.
func (m *Manager) Open(episode string) (*Workspace, bool) {
	p := m.placeOf(episode)
	if p == nil {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.w, p.w != nil && !p.w.Gone()
}

// Workspace is Open for code outside of the episode. Where the policy's programs keep a command from running, that is the
// command's result.
func (m *Manager) Workspace(episode string) (producers.Workspace, bool) {
	if w, ok := m.Open(episode); ok {
		return scored{w}, true
	}
	return nil, false
}

func (m *Manager) placeOf(episode string) *place {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.places[episode]
}

// errClosed is the error of whoever asks a closed manager, or waits when it is closed.
var errClosed = fmt.Errorf("%w: the workspaces are closed", producers.ErrUnavailable)

// Close ends every workspace and every wait for a place, and returns when no process is left.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	pool := m.pool
	m.mu.Unlock()
	m.cancel()
	m.filler.Wait()
	for _, w := range m.listWorkspaces() {
		w.Close()
	}
	if pool == nil {
		return nil
	}
	return pool.Close()
}

// listWorkspaces returns all workspaces, and takes the reserve.
func (m *Manager) listWorkspaces() []*Workspace {
	var out []*Workspace
	for w := m.takeWarm(); w != nil; w = m.takeWarm() {
		out = append(out, w)
	}
	m.mu.Lock()
	places := slices.Collect(maps.Values(m.places))
	m.mu.Unlock()
	for _, p := range places {
		p.mu.Lock()
		out = append(out, p.listOpen()...)
		p.mu.Unlock()
	}
	return out
}
