package bpe

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	cacheSlots  = 1 << 16
	cachedPiece = 24 // bytes; longer pieces seldom come again
)

// cache remembers the tokens of pieces. A piece has a single place, which it takes from the piece that was there.
type cache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cached]
}

type cached struct {
	piece string
	ids   []int32
}

func newCache() *cache {
	return &cache{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[cached], cacheSlots)}
}

// findSlot is a piece's place; nil for a piece that is too long to be remembered.
func (c *cache) findSlot(piece string) *atomic.Pointer[cached] {
	if len(piece) > cachedPiece {
		return nil
	}
	return &c.slots[maphash.String(c.seed, piece)%cacheSlots]
}

func (c *cache) putPiece(slot *atomic.Pointer[cached], piece string, ids []int32) {
	slot.Store(&cached{strings.Clone(piece), append([]int32(nil), ids...)})
}
