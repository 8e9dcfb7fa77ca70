package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// archiveRole is a role that keeps the messages of a world in a folder. Each request is taken up by a new process of it.
type archiveRole struct {
	w      *world
	folder messages.Folder
	// dies says of each request where the process dies: before it keeps, before it tells, or nowhere.
	dies func() string
	// asks is called before a request is taken up; nil is nothing.
	asks func()

	mu       sync.Mutex
	gone     bool
	asked    *streams.KeepRequest
	told     *streams.Kept
	watchers map[chan struct{}]bool
}

func (w *world) addArchive(t *testing.T) *archiveRole {
	w.archive = &archiveRole{
		w: w, folder: messages.Folder{Dir: t.TempDir()}, dies: func() string { return "" }, watchers: map[chan struct{}]bool{},
	}
	return w.archive
}

func (w *world) AskToKeep(_ context.Context, r *streams.KeepRequest) error {
	if err := w.crash("before ask"); err != nil {
		return err
	}
	if w.archive.asks != nil {
		w.archive.asks()
	}
	w.archive.mu.Lock()
	w.archive.asked = r
	w.archive.mu.Unlock()
	w.archive.serve()
	return w.crash("after ask")
}

// serve takes up the newest request, in a process that is started again where it dies.
func (a *archiveRole) serve() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone || a.asked == nil {
		return
	}
	r := a.asked
	where := a.dies()
	if where == "before it keeps" {
		go a.serve()
		return
	}
	life := messages.Life{Created: r.Created, Losses: r.Losses}
	owner := messages.Owner{Run: a.w.run, ID: r.Owner}
	archive, err := messages.Open(a.folder, messages.Config{Bytes: 1 << 30}, owner, life, slog.New(slog.DiscardHandler))
	ahead := a.findAhead(r)
	if a.w.createdAt() != r.Created {
		err = streams.ErrStreamRecreated
	}
	if err == nil && ahead == nil {
		_, err = archive.Keep(context.Background(), storedSource{&worldFeed{w: a.w}}, r.Sequence)
	}
	kept := &streams.Kept{Owner: "a/1/x", Position: r.Position, Losses: r.Losses, Ahead: ahead}
	if ahead != nil {
		kept.Failure = "the archive is ahead"
	}
	if err != nil {
		kept.Failure = err.Error()
	}
	if archive != nil && kept.Failure == "" {
		kept.Sequence = archive.Last()
		for _, g := range archive.Gaps() {
			kept.Gaps = append(kept.Gaps, streams.Gap(g))
		}
	}
	if where == "before it tells" {
		go a.serve()
		return
	}
	a.told = kept
	for ch := range a.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (w *world) createdAt() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.created
}

// findAhead says, as the role does, how often the stream had lost messages where the folder has messages that it has lost.
func (a *archiveRole) findAhead(r *streams.KeepRequest) *int64 {
	newest, err := messages.Newest(a.folder, r.Created)
	if err != nil || newest == nil || newest.Losses < r.Losses {
		return nil
	}
	if newest.Losses == r.Losses {
		a.w.mu.Lock()
		defer a.w.mu.Unlock()
		if newest.Sequence <= uint64(len(a.w.messages)) {
			return nil
		}
	}
	return &newest.Losses
}

// come has the role there from now on.
func (a *archiveRole) come() {
	a.mu.Lock()
	a.gone = false
	a.mu.Unlock()
	a.serve()
}

func (w *world) FollowKept(ctx context.Context, fn func(*streams.Kept)) error {
	a, ch := w.archive, make(chan struct{}, 1)
	a.mu.Lock()
	a.watchers[ch] = true
	now := a.told
	a.mu.Unlock()
	for {
		if now != nil {
			fn(now)
		}
		select {
		case <-ctx.Done():
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.watchers, ch)
			return nil
		case <-ch:
			a.mu.Lock()
			now = a.told
			a.mu.Unlock()
		}
	}
}

// byRole is a configuration whose messages a role keeps.
func byRole(t *testing.T, required bool) Config {
	cfg := testConfig(t.TempDir())
	cfg.Eta, cfg.Depth = 2, 2
	cfg.Archive.Messages.Bytes, cfg.Archive.Messages.By, cfg.Archive.Required = 1<<30, "role", required
	return cfg
}

func (w *world) purgedUpTo() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.purged
}

// requireStored makes sure that an archive has the world's messages up to a sequence as they were published.
func requireStored(t *testing.T, w *world, kept map[uint64][]byte, upTo uint64) {
	t.Helper()
	for s := uint64(1); s <= upTo; s++ {
		want := any(w.messages[s-1].Trajectory)
		if w.messages[s-1].Closed != nil {
			want = w.messages[s-1].Closed
		}
		data, err := schemas.Marshal(want)
		require.NoError(t, err)
		require.Equal(t, data, kept[s], "sequence %d", s)
	}
}

// Invariant: where a role keeps the messages and the archive is required, nothing is purged that the role has not told it has kept.
//
// Trainer and role die at random points. Each purge is compared with the folder at once, and each step's batch at the end.
func TestInvariantNothingIsPurgedThatTheRoleHasNotKept(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			cfg := byRole(t, true)
			cfg.Checkpoint.Messages = 20 // checkpoints are renewed within steps, too
			w := newWorld(vocab)
			w.noise, w.flat = true, 3
			role := w.addArchive(t)
			deaths := rand.New(rand.NewPCG(seed, 2))
			role.dies = func() string { return []string{"", "", "before it keeps", "before it tells"}[deaths.IntN(4)] }
			random := rand.New(rand.NewPCG(seed, 1))
			compared := uint64(0)
			w.crash = func(point string) error {
				if purged := w.purgedUpTo(); purged > compared {
					requireStored(t, w, keptMessages(t, role.folder), purged)
					compared = purged
				}
				if random.IntN(60) == 0 {
					return errCrash
				}
				return nil
			}
			train(t, cfg, w)
			require.NotZero(t, compared)
			kept := keptMessages(t, role.folder)
			records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
			require.NoError(t, err)
			for _, r := range records {
				for _, g := range r.Groups {
					for _, m := range g.Used() {
						require.Contains(t, kept, m.Sequence)
					}
				}
			}
			verified, err := messages.Verify(role.folder)
			require.NoError(t, err)
			require.Empty(t, verified.Damage)
			require.Empty(t, verified.Notes)
		})
	}
}

// A role keeps the very messages that the trainer would.
func TestARoleKeepsWhatTheTrainerWould(t *testing.T) {
	t.Parallel()
	for _, required := range []bool{true, false} {
		cfg := byRole(t, required)
		w := newWorld(vocab)
		role := w.addArchive(t)
		train(t, cfg, w)
		own := newWorld(vocab)
		alone := byRole(t, required)
		alone.Archive.Messages.By = "trainer"
		train(t, alone, own)
		require.Equal(t, own.purged, w.purged)
		have := keptMessages(t, role.folder)
		for s, data := range keptMessages(t, alone.Archive.MessagesFolder(alone.Checkpoint.Dir)) {
			require.Equal(t, data, have[s], "sequence %d", s)
		}
	}
}

// trainWithRole runs the trainer in the background and returns its end.
func trainWithRole(ctx context.Context, cfg Config, w *world, m *Metrics) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Metrics: m})
	}()
	return ended
}

// The role is away: where it is required the run waits before its first step, and says so; it goes on when the role comes.
func TestARunWaitsForTheRoleThatItRequires(t *testing.T) {
	t.Parallel()
	cfg := byRole(t, true)
	w := newWorld(vocab)
	role := w.addArchive(t)
	role.gone = true
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan schemas.Event, 8)
	deps := Deps{
		Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Metrics: m, Observer: func(e schemas.Event) {
			if e.Type == schemas.EventWaiting {
				said <- e
			}
		},
	}
	ended := make(chan error, 2)
	go func() { ended <- Run(ctx, cfg, deps) }()
	awaited := func() bool { return testutil.ToFloat64(m.awaited) == 1 }
	require.Eventually(t, awaited, time.Minute, time.Millisecond)
	require.NotZero(t, testutil.ToFloat64(m.behind))
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records, 1, "no step")
	require.Zero(t, w.purgedUpTo())
	// A trainer that is told to stop meanwhile does.
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	go func() { ended <- Run(t.Context(), cfg, deps) }()
	// Reader 10, finding 5: weir status and the page said that the trainer waits for trajectories, or was killed.
	require.Equal(t, "the run waits for weir archive, as trainer.archive.required is set: none has ever come: start weir archive", (<-said).Message)
	role.come()
	require.Empty(t, (<-said).Message, "it goes on")
	require.NoError(t, <-ended)
	require.Zero(t, testutil.ToFloat64(m.awaited))
	require.Zero(t, testutil.ToFloat64(m.unkept))
	audit(t, cfg, w)
	requireStored(t, w, keptMessages(t, role.folder), w.purged)
}

// Without required the stream is the room in which the role may be late. When it is half full, messages are purged that are not kept: each
// is counted once, over a restart of the trainer too, and the role that comes late names the gap.
func TestARunGoesOnWithoutTheRoleAndCountsWhatIsLost(t *testing.T) {
	t.Parallel()
	cfg := byRole(t, false)
	w := newWorld(vocab)
	role := w.addArchive(t)
	role.gone = true
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	steps := cfg.Steps
	require.NoError(t, <-trainWithRole(t.Context(), cfg, w, m))
	require.Zero(t, w.purgedUpTo(), "there is room")
	require.Zero(t, testutil.ToFloat64(m.unkept))

	w.full = 0.5
	cfg.Steps = 2 * steps
	require.NoError(t, <-trainWithRole(t.Context(), cfg, w, m))
	lost := w.purgedUpTo()
	require.NotZero(t, lost)
	require.EqualValues(t, lost, testutil.ToFloat64(m.unkept))

	role.come()
	cfg.Steps = 3 * steps
	require.NoError(t, <-trainWithRole(t.Context(), cfg, w, m))
	audit(t, cfg, w)
	require.Greater(t, w.purgedUpTo(), lost)
	kept := keptMessages(t, role.folder)
	missing := testutil.ToFloat64(m.unkept)
	for s := uint64(1); s <= w.purged; s++ {
		if _, ok := kept[s]; !ok {
			missing--
		}
	}
	require.Zero(t, missing, "what is lost is what was counted")
	verified, err := messages.Verify(role.folder)
	require.NoError(t, err)
	require.Empty(t, verified.Damage)
	require.Len(t, verified.Notes, 1)
}

// A message that left the stream before the role could keep it, as by a purge by hand, is trained on by no step.
func TestNoStepTrainsOnAMessageThatTheRoleLacks(t *testing.T) {
	t.Parallel()
	cfg := byRole(t, true)
	w := newWorld(vocab)
	role := w.addArchive(t)
	w.idle = true
	purged := false
	w.crash = func(point string) error {
		if point == "before next" && len(w.messages) == 35 && !purged { // some of a batch have come
			w.purged, purged = uint64(len(w.messages)), true
		}
		return nil
	}
	// Whatever the role that found it out has done, another that is started again knows.
	role.dies = func() string { return "" }
	err := <-trainWithRole(t.Context(), cfg, w, nil)
	require.ErrorContains(t, err, "left the stream before it was kept")
	require.NoError(t, <-trainWithRole(t.Context(), cfg, w, nil))
	kept := keptMessages(t, role.folder)
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	for _, r := range records {
		for _, g := range r.Groups {
			for _, m := range g.Used() {
				require.Contains(t, kept, m.Sequence, r.Step)
			}
		}
	}
}

// failedStream is a world whose role cannot be followed.
type failedStream struct{ *world }

var errDeafened = errors.New("permission denied")

func (failedStream) FollowKept(context.Context, func(*streams.Kept)) error { return errDeafened }

// A run that cannot hear the role ends with the reason, and does not wait for ever.
func TestARunThatCannotHearTheRoleEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(vocab)
	w.addArchive(t)
	err := Run(t.Context(), byRole(t, true), Deps{Engine: enginetest.NewBigram(vocab), Stream: failedStream{w}, Prompts: prompts{vocab}})
	require.ErrorIs(t, err, errDeafened)
}

// Finding 17.1: a trainer that waited for the role while the broker lost its store waited for ever: the role answered that the stream was
// gone, and the trainer asked for it again and again.
func TestATrainerThatWaitsForTheRoleFindsThatItsStreamIsGone(t *testing.T) {
	t.Parallel()
	cfg := byRole(t, true)
	w := newWorld(vocab)
	role := w.addArchive(t)
	lost := false
	role.asks = func() {
		if lost {
			return
		}
		lost = true
		w.mu.Lock()
		defer w.mu.Unlock()
		w.messages, w.acked, w.purged = nil, map[uint64]bool{}, 0
		w.created = w.created.Add(1e9)
		w.tickets, w.issued = nil, map[string]int{}
	}
	train(t, cfg, w)
	require.True(t, lost)
	kept := keptMessages(t, role.folder)
	require.NotEmpty(t, kept)
}
