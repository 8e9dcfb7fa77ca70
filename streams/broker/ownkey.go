package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/nats-io/nkeys"

	"github.com/weir-rl/weir/streams"
)

// ownKey is a key of the admin that a broker makes for its own process at each start, where it has keys and not the admin's seed. It
// is in memory alone, and lets in at this broker alone: so the brokers of a cluster make the run's streams, and the admin's seed
// stays on its machine.
type ownKey struct {
	public string
	pair   nkeys.KeyPair
}

// makeOwnKey is nil where there are no keys, or the admin's seed is there.
func (c Config) makeOwnKey() (*ownKey, error) {
	if c.Keys == nil {
		return nil, nil
	}
	if seed := c.Keys.SeedFile(streams.RoleAdmin); seed != "" {
		if _, err := os.Stat(seed); !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make a key of the broker's own: %w", err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("make a key of the broker's own: %w", err)
	}
	return &ownKey{public, pair}, nil
}

// withKey is the key ring with a further key of a role.
func (k *KeyRing) withKey(role streams.Role, public string) *KeyRing {
	more := *k
	more.Public = maps.Clone(k.Public)
	more.Public[role] = append(slices.Clone(k.Public[role]), public)
	return &more
}
