package consumers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// ManifestSource is where manifests come from; streams.Run is one.
type ManifestSource interface {
	// FollowWeights calls f with the newest manifest and with each newer one, skipping to the latest, until ctx ends.
	FollowWeights(ctx context.Context, f func(*schemas.Manifest) error) error
}

// WeightLoader is where a version's bytes come from; streams.Weights is one.
type WeightLoader interface {
	// Load reads the whole safetensors bytes of each of m's shards, verified by their hashes.
	Load(ctx context.Context, m *schemas.Manifest) ([][]byte, error)
}

// Swapper takes decoded weights; Engine is one.
type Swapper interface {
	Swap(ctx context.Context, s Snapshot) (Swapped, error)
}

// Follower keeps a Swapper at the newest policy version. It fetches, verifies and decodes before it swaps. A version
// that is bad is logged with its reason and left, and the old weights stay; one that could not be fetched is tried
// again until it is there or a newer one is. One goroutine runs it.
type Follower struct {
	Manifests ManifestSource
	Weights   WeightLoader
	Swapper   Swapper
	// Applied is told of each version that came into use; nil tells nobody.
	Applied func(context.Context, Applied)
	Metrics *Metrics
	Log     *slog.Logger

	current *schemas.Manifest // the one in use
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
	// corruptTries is how often a version is read whose bytes are not those of its manifest: what is wrong may be the way, or
	// a replica, and not the version.
	corruptTries = 4
)

// Run follows until ctx ends or the source fails.
func (f *Follower) Run(ctx context.Context) error {
	// newest holds the latest manifest not yet looked at; an older one gives way to it.
	newest := make(chan *schemas.Manifest, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.watch(ctx, newest) })
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case m := <-newest:
				f.follow(ctx, m, newest)
			}
		}
	})
	return group.Wait()
}

// watch keeps the newest manifest in its channel. One that cannot be read is refused, and the watch goes on.
func (f *Follower) watch(ctx context.Context, newest chan *schemas.Manifest) error {
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
			return nil //nolint:nilerr // what ended the source is that ctx did
		}
		switch {
		case err == nil:
			return errors.New("follow weights: the source ended")
		case !unreadable(err):
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

// unreadable is whether an error is about a message, and not about how it travels.
func unreadable(err error) bool {
	for _, fault := range []error{schemas.ErrVersion, schemas.ErrKind, schemas.ErrMalformed, schemas.ErrInvalid} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

// follow applies m, or a newer one that arrives while m cannot be had.
func (f *Follower) follow(ctx context.Context, m *schemas.Manifest, newest <-chan *schemas.Manifest) {
	corrupt := 0
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := f.apply(ctx, m)
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

func (f *Follower) apply(ctx context.Context, m *schemas.Manifest) error {
	if f.current != nil && f.current.Version == m.Version && slices.Equal(f.current.Shards, m.Shards) {
		return nil
	}
	started := time.Now()
	s, err := f.fetch(ctx, m)
	if err != nil {
		return err
	}
	a := Applied{Version: m.Version, Fetch: time.Since(started)}
	if a.Swapped, err = f.Swapper.Swap(ctx, s); err != nil {
		return err
	}
	f.current = m
	if !m.PublishedAt.IsZero() {
		a.Lag = time.Since(m.PublishedAt)
	}
	f.Metrics.fetchSeconds.Observe(a.Fetch.Seconds())
	f.Metrics.prepareSeconds.Observe(a.Prepare.Seconds())
	f.Log.Debug("applied weights", "policy_version", m.Version, "fetch", a.Fetch, "prepare", a.Prepare, "pause", a.Pause, "lag", a.Lag)
	if f.Applied != nil {
		f.Applied(ctx, a)
	}
	return nil
}

// fetch turns a manifest into weights. What is wrong with the manifest or a shard wraps ErrBadWeights.
func (f *Follower) fetch(ctx context.Context, m *schemas.Manifest) (Snapshot, error) {
	s := Snapshot{Version: m.Version, Weights: &gpu.Weights{}}
	bad := func(format string, args ...any) (Snapshot, error) {
		return Snapshot{}, fmt.Errorf("%w: "+format, append([]any{ErrBadWeights}, args...)...)
	}
	if got := hexHash(m.Config); got != m.ConfigHash {
		return bad("the model configuration has hash %s, the manifest says %s", got, m.ConfigHash)
	}
	if f.current != nil && f.current.TokenizerHash != m.TokenizerHash {
		return bad("they are of tokenizer %s, those in use of %s", m.TokenizerHash, f.current.TokenizerHash)
	}
	if err := json.Unmarshal(m.Config, &s.Config); err != nil {
		return bad("read the model configuration: %w", err)
	}
	if err := s.Config.Validate(); err != nil {
		return bad("%w", err)
	}
	files, err := f.Weights.Load(ctx, m)
	switch {
	case errors.Is(err, streams.ErrCorruptShard):
		return bad("%w", err)
	case err != nil:
		return Snapshot{}, err
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	shards := make([]*gpu.Weights, len(files))
	for i := range files {
		group.Go(func() (err error) {
			if shards[i], err = safetensors.Decode(files[i]); err != nil {
				return fmt.Errorf("decode shard %d: %w", i, err)
			}
			files[i] = nil // a whole copy of the bytes is not kept beside the decoded weights
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return bad("%w", err)
	}
	for _, w := range shards {
		s.Weights.Tensors = append(s.Weights.Tensors, w.Tensors...)
	}
	return s, nil
}

func hexHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
