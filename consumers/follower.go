package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// ManifestSource has the manifests of a run; streams.Run is a ManifestSource.
type ManifestSource interface {
	// FollowWeights calls f with the newest manifest and with each newer manifest, skipping to the latest, until ctx ends.
	FollowWeights(ctx context.Context, f func(*schemas.Manifest) error) error
}

// Swapper takes decoded weights; a [Sampler] does.
type Swapper interface {
	Swap(ctx context.Context, s Snapshot) (Swapped, error)
}

// Follower keeps a Swapper at the newest policy version. It fetches, verifies and decodes a version before it swaps. A version
// that is bad is logged with the reason and refused, and the old weights stay; a version that could not be fetched is fetched
// again until it is there or a newer version is. The first version may be of any model and tokenizer; later versions must be of the
// same. A single goroutine runs it.
type Follower struct {
	Manifests ManifestSource
	Weights   WeightLoader
	Swapper   Swapper
	// Folder gives the Swapper each version as a folder; nil gives it the weights in memory.
	Folder *Folder
	// Applied is called after each version that came into use, when it is not nil.
	Applied func(context.Context, Applied)
	// Metrics may be nil, which counts nothing that anybody sees; Log may be nil, which logs nothing.
	Metrics *Metrics
	Log     *slog.Logger

	current *schemas.Manifest // of the version in use
}

// Applied is a version that came into use.
type Applied struct {
	Version int64
	Swapped
	// Fetch is how long fetching, verifying and decoding took, and Lag the time from publishing to use by the two
	// machines' clocks.
	Fetch, Lag time.Duration
}

// Waits before a version is fetched again.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// corruptTries is how often a version is read whose bytes are not those of its manifest: the fault may lie in the connection
	// or in a replica, and not in the version.
	corruptTries = 4
)

// Run follows until ctx ends or the source fails.
func (f *Follower) Run(ctx context.Context) error {
	f.Metrics, f.Log = orUnseen(f.Metrics), orDiscard(f.Log)
	// newest holds the latest manifest that was not looked at; a newer manifest takes its place.
	newest := make(chan *schemas.Manifest, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.watchManifests(ctx, newest) })
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case m := <-newest:
				f.followManifest(ctx, m, newest)
			}
		}
	})
	return group.Wait()
}

// watchManifests keeps the newest manifest in its channel. It refuses a manifest that cannot be read, and goes on.
func (f *Follower) watchManifests(ctx context.Context, newest chan *schemas.Manifest) error {
	var refused string
	for {
		err := f.Manifests.FollowWeights(ctx, func(m *schemas.Manifest) error {
			select {
			case <-newest:
			default:
			}
			newest <- m
			return nil
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the source ended because ctx did
		}
		switch {
		case err == nil:
			return errors.New("follow weights: the source ended")
		case !isUnreadable(err):
			return fmt.Errorf("follow weights: %w", err)
		}
		if err.Error() != refused {
			refused = err.Error()
			f.Metrics.refused.Inc()
			f.Log.Error("refused a manifest", "err", err)
		}
		timer := time.NewTimer(lastRetry)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// isUnreadable reports whether an error is about a message, and not about its transport.
func isUnreadable(err error) bool {
	for _, fault := range []error{schemas.ErrVersion, schemas.ErrKind, schemas.ErrMalformed, schemas.ErrInvalid} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

// followManifest applies m, or a newer manifest that arrives while m cannot be had.
func (f *Follower) followManifest(ctx context.Context, m *schemas.Manifest, newest <-chan *schemas.Manifest) {
	corrupt := 0
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := f.applyManifest(ctx, m)
		if errors.Is(err, streams.ErrCorruptShard) {
			corrupt++
		}
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.Is(err, ErrBadWeights) && (corrupt == 0 || corrupt >= corruptTries):
			f.Metrics.refused.Inc()
			f.Log.Error("refused weights", "policy_version", m.Version, "err", err)
			return
		}
		f.Log.Warn("could not get weights; trying again", "policy_version", m.Version, "wait", wait, "err", err)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case m = <-newest:
			wait, corrupt = firstRetry, 0
		}
		timer.Stop()
	}
}

func (f *Follower) applyManifest(ctx context.Context, m *schemas.Manifest) error {
	if f.current != nil && f.current.Version == m.Version && slices.Equal(f.current.AllShards(), m.AllShards()) {
		return nil
	}
	started := time.Now()
	var tokenizer string
	if f.current != nil {
		tokenizer = f.current.TokenizerHash
	}
	s, err := f.landSnapshot(ctx, m, tokenizer)
	if err != nil {
		return err
	}
	a := Applied{Version: m.Version, Fetch: time.Since(started)}
	if a.Swapped, err = f.Swapper.Swap(ctx, s); err != nil {
		return err
	}
	f.current = m
	f.tidyFolder()
	if !m.PublishedAt.IsZero() {
		a.Lag = time.Since(m.PublishedAt)
	}
	f.Metrics.fetchSeconds.Observe(a.Fetch.Seconds())
	f.Metrics.prepareSeconds.Observe(a.Prepare.Seconds())
	f.Metrics.swapSeconds.Observe(a.Pause.Seconds())
	f.Metrics.swaps.Inc()
	f.Metrics.applied.Set(float64(m.Version))
	f.Log.Debug("applied weights", "policy_version", m.Version, "fetch", a.Fetch, "prepare", a.Prepare, "pause", a.Pause, "lag", a.Lag)
	if f.Applied != nil {
		f.Applied(ctx, a)
	}
	return nil
}

// landSnapshot is the snapshot of a manifest: in the Folder where it is set, else with the weights in memory.
func (f *Follower) landSnapshot(ctx context.Context, m *schemas.Manifest, tokenizer string) (Snapshot, error) {
	if f.Folder == nil {
		return Fetch(ctx, f.Weights, m, tokenizer)
	}
	return f.Folder.Land(ctx, f.Weights, m, tokenizer)
}

// tidyFolder removes old folders after a swap; a folder that cannot be removed now is removed later.
func (f *Follower) tidyFolder() {
	if f.Folder == nil {
		return
	}
	if err := f.Folder.Tidy(); err != nil {
		f.Log.Warn("old weights not removed", "folder", f.Folder.Dir(), "err", err)
	}
}
