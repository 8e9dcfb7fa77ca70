package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/seam"
)

const (
	// manifestKey is the only key of WEIGHTS. Its value is the newest manifest and its history the earlier manifests: so a version
	// is published by a single compare-and-set, and there is no half-published state to mend.
	manifestKey = "manifest"
	// weightsHistory is how many manifests WEIGHTS holds, the most that a bucket can. Shards are kept for fewer versions.
	weightsHistory = 64
)

// LatestManifest is the newest published version; [ErrNoWeights] if there is none.
func (r *Run) LatestManifest(ctx context.Context) (*schemas.Manifest, error) {
	m, _, err := r.latestManifest(ctx)
	return m, err
}

// latestManifest also returns the revision that a newer manifest must name, which is set with ErrNoWeights too.
func (r *Run) latestManifest(ctx context.Context) (*schemas.Manifest, uint64, error) {
	e, err := r.readEntry(ctx, r.names.weights, manifestKey)
	if err != nil {
		return nil, 0, err
	}
	if e.value == nil {
		return nil, e.revision, fmt.Errorf("run %s: %w", r.run, ErrNoWeights)
	}
	m, err := r.readManifest(e.value)
	return m, e.revision, err
}

// Manifest is the manifest of a version; [ErrNoWeights] if the version was never published or is no longer kept.
func (r *Run) Manifest(ctx context.Context, version int64) (*schemas.Manifest, error) {
	history, err := r.readManifests(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range history {
		if m.Version == version {
			return m, nil
		}
	}
	return nil, fmt.Errorf("run %s: version %d: %w", r.run, version, ErrNoWeights)
}

// Keeps says whether the broker still keeps a version's weights: the newest [Topology.WeightsKeep] versions are kept.
func (r *Run) Keeps(ctx context.Context, version int64) (bool, error) {
	history, err := r.readManifests(ctx)
	if err != nil {
		return false, err
	}
	newest := history[:min(r.topology.WeightsKeep, len(history))]
	return slices.ContainsFunc(newest, func(m *schemas.Manifest) bool { return m.Version == version }), nil
}

// readManifests are the manifests that the bucket still holds, newest first.
func (r *Run) readManifests(ctx context.Context) (history []*schemas.Manifest, err error) {
	for next, more := uint64(1), true; more; {
		next, more, err = r.readMessages(ctx, "KV_"+r.names.weights, keySubject(r.names.weights, manifestKey), next,
			seam.Window{Messages: weightsHistory, Bytes: 16 << 20}, func(e seam.Message) error {
				if e.Header.Get("KV-Operation") != "" { // deleted or purged
					history = nil
					return nil
				}
				m, err := r.readManifest(e.Data)
				if err != nil {
					r.log.Error("unreadable manifest skipped", "revision", e.Sequence, "err", err)
					return nil
				}
				history = append(history, m)
				return nil
			})
		if err != nil {
			return nil, err
		}
	}
	slices.Reverse(history)
	return history, nil
}

func (r *Run) readManifest(data []byte) (*schemas.Manifest, error) {
	m := new(schemas.Manifest)
	if err := schemas.Unmarshal(data, m); err != nil {
		return nil, err
	}
	return m, r.checkOwn(m.Run, m.Validate())
}

// ManifestFits fails with [ErrTooLarge] where the broker takes no message as large as a manifest.
func (r *Run) ManifestFits(m *schemas.Manifest) error {
	data, err := schemas.Marshal(m)
	if err != nil {
		return err
	}
	if room := r.nc.MaxPayload() - headerRoom; int64(len(data)) > room {
		return fmt.Errorf("%w: the manifest of %d shards takes %d bytes, and the broker takes %d a message: raise trainer.publish.shard_bytes, or broker.max_payload (max_payload of a NATS server)",
			ErrTooLarge, len(m.AllShards()), len(data), r.nc.MaxPayload())
	}
	return nil
}

// FollowWeights calls fn with the newest version, if there is a version, and then with each newer version; of several versions
// that are published while fn runs it calls fn with the newest alone. It returns fn's error, or nil when ctx ends. An error of fn
// that wraps [ErrNoShard] is forgiven where a newer version has been published: fn was too slow for its version.
//
// Invariant: the versions that fn sees only rise.
func (r *Run) FollowWeights(ctx context.Context, fn func(*schemas.Manifest) error) error {
	return r.followKey(ctx, r.names.weights, manifestKey, func(data []byte, revision uint64) error {
		m, err := r.readManifest(data)
		if err != nil {
			return fmt.Errorf("manifest of revision %d: %w", revision, err)
		}
		err = fn(m)
		if errors.Is(err, ErrNoShard) {
			if newest, _, latestErr := r.latestManifest(ctx); latestErr == nil && newest.Version > m.Version {
				r.log.Warn("version gone before it was loaded; going on to a newer one", "version", m.Version, "newest", newest.Version)
				return nil
			}
		}
		return err
	})
}
