package weights

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// chainOf is m and its bases down to a whole version, newest first. It fails with [streams.ErrNoWeights] where a base is not in history.
func chainOf(m *schemas.Manifest, history []*schemas.Manifest) ([]*schemas.Manifest, error) {
	links := []*schemas.Manifest{m}
	for m.Base != schemas.NoBase {
		i := slices.IndexFunc(history, func(h *schemas.Manifest) bool { return h.Version == m.Base })
		if i < 0 {
			return nil, fmt.Errorf("version %d stands on version %d: %w", m.Version, m.Base, streams.ErrNoWeights)
		}
		m = history[i]
		links = append(links, m)
	}
	return links, nil
}

// neededHashes are the hashes of the shards of the newest keep versions of history and of their bases. A version of which a base is gone
// cannot be read, and needs no shard.
func neededHashes(history []*schemas.Manifest, keep int) map[string]bool {
	hashes := make(map[string]bool)
	for _, m := range history[:min(keep, len(history))] {
		links, err := chainOf(m, history)
		if err != nil {
			continue
		}
		for _, link := range links {
			for _, s := range link.AllShards() {
				hashes[s.Hash] = true
			}
		}
	}
	return hashes
}
