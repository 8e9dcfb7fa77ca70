package weights

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// versionPlan is the plan of a version's publication.
type versionPlan struct {
	// manifest is the caller's, of whole shards; a hash is "" where it is not known yet.
	manifest *schemas.Manifest
	// history are the manifests that the run still holds, newest first; latest is the newest that can be read, nil where there is
	// none; revision is the revision that the next manifest must name.
	history  []*schemas.Manifest
	latest   *schemas.Manifest
	revision uint64
	// published is whether this version or a newer version is published already.
	published bool
	// frozen is whether the frozen shards of an adapter are to be stored.
	frozen bool
	// base is the version that deltas can be made against, nil where the version is published whole.
	base *heldVersion
}

// planVersion reads the published manifests, and decides how a version is to be stored.
func (p *Publisher) planVersion(ctx context.Context, m *schemas.Manifest) (versionPlan, error) {
	plan := versionPlan{manifest: m}
	var err error
	if plan.history, plan.latest, plan.revision, err = p.readPublished(ctx); err != nil {
		return plan, err
	}
	latest := plan.latest
	if plan.published = latest != nil && m.Version <= latest.Version; plan.published {
		return plan, nil
	}
	plan.frozen = m.Adapter != nil && (latest == nil || !sameFrozen(m, latest))
	plan.base = p.deltaBase(m, latest)
	return plan, p.run.CheckManifest(sizedManifest(m))
}

// deltaBase is the version published last where this publisher holds it, and its chain of bases may grow; else nil.
func (p *Publisher) deltaBase(m, latest *schemas.Manifest) *heldVersion {
	held := p.held
	if p.config.BaseEvery == 1 || latest == nil || held == nil || held.length >= p.config.BaseEvery {
		return nil
	}
	if held.manifest.Version != latest.Version || !sameWeights(held.manifest, latest) || !sameFrozen(held.manifest, m) ||
		len(held.manifest.Shards) != len(m.Shards) {
		return nil
	}
	return held
}

// readPublished is the manifests of the run, newest first; the newest that can be read, nil where none can; and the revision that the
// next manifest must name. A newest value that is no manifest is written over.
func (p *Publisher) readPublished(ctx context.Context) (history []*schemas.Manifest, latest *schemas.Manifest, revision uint64, err error) {
	if history, err = p.run.Manifests(ctx); err != nil {
		return nil, nil, 0, err
	}
	latest, revision, err = p.run.NewestManifest(ctx)
	switch {
	case errors.Is(err, schemas.ErrMalformed) || errors.Is(err, schemas.ErrInvalid):
		if latest = nil; len(history) > 0 {
			latest = history[0]
		}
	case err != nil && !errors.Is(err, streams.ErrNoWeights):
		return nil, nil, 0, err
	}
	return history, latest, revision, nil
}

// findPublished is the manifest under which the weights of m are published already; streams.ErrFenced where the version is published
// with other weights, or a newer version is published.
func (p versionPlan) findPublished(m *schemas.Manifest) (*schemas.Manifest, error) {
	for _, h := range p.history {
		if h.Version == m.Version && sameWeights(h, m) {
			return h, nil
		}
	}
	return nil, fmt.Errorf("%w: version %d is published, and not these weights", streams.ErrFenced, p.latest.Version)
}

// sizedManifest is m with hashes and sizes that are as long on the wire as any.
func sizedManifest(m *schemas.Manifest) *schemas.Manifest {
	long := copyManifest(m)
	for i := range long.Shards {
		nameShard(&long.Shards[i], schemas.ContentHash(nil), math.MaxInt64)
	}
	if long.Adapter != nil {
		for i := range long.Adapter.Frozen {
			nameShard(&long.Adapter.Frozen[i], schemas.ContentHash(nil), math.MaxInt64)
		}
	}
	return long
}

// copyManifest is a copy of m whose shards can be named.
func copyManifest(m *schemas.Manifest) *schemas.Manifest {
	c := *m
	c.Shards = slices.Clone(m.Shards)
	if m.Adapter != nil {
		adapter := *m.Adapter
		adapter.Frozen = slices.Clone(adapter.Frozen)
		c.Adapter = &adapter
	}
	return &c
}

// nameShard sets the hash and the size of a whole shard.
func nameShard(s *schemas.Shard, hash string, size int64) {
	s.Hash, s.FullHash, s.Size = hash, hash, size
}

// sameWeights is whether two manifests of a version hold the same tensors, however they are stored.
func sameWeights(a, b *schemas.Manifest) bool {
	return a.ConfigHash == b.ConfigHash && a.TokenizerHash == b.TokenizerHash && a.DType == b.DType && sameFrozen(a, b) &&
		slices.EqualFunc(a.Shards, b.Shards, sameBytes)
}

// sameFrozen is whether two versions are adapters on the same weights, or neither is an adapter.
func sameFrozen(a, b *schemas.Manifest) bool {
	if a.Adapter == nil || b.Adapter == nil {
		return a.Adapter == b.Adapter
	}
	return a.Adapter.Rank == b.Adapter.Rank && a.Adapter.Alpha == b.Adapter.Alpha &&
		slices.EqualFunc(a.Adapter.Frozen, b.Adapter.Frozen, sameBytes)
}

func sameBytes(x, y schemas.Shard) bool { return x.FullHash == y.FullHash }
