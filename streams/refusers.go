package streams

import (
	"strings"
	"sync"
)

const (
	// maxRefusers bounds the producers whose refused messages are counted under their own names: a producer chooses its name, and a
	// metric must not grow with them.
	maxRefusers = 32
	// OtherProducers is the name under which the refused messages of all other producers are counted. No producer can have it.
	OtherProducers = "(others)"
)

// producerCounts count messages by producer. The zero value is ready. Any goroutine may call its methods.
type producerCounts struct {
	mu     sync.Mutex
	counts map[string]int
	// named are the producers that have a count of their own, for as long as the feed lives.
	named map[string]bool
}

func (c *producerCounts) countMessage(producer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.named == nil {
		c.named = make(map[string]bool)
	}
	if !c.named[producer] && len(c.named) == maxRefusers {
		producer = OtherProducers
	} else {
		c.named[producer] = true
	}
	if c.counts == nil {
		c.counts = make(map[string]int)
	}
	c.counts[producer]++
}

// takeCounts returns the counts, and begins anew.
func (c *producerCounts) takeCounts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	c.counts = nil
	return counts
}

// producerOf is the producer that the subject of a message in TRAJECTORIES names. On a broker with keys a producer can only publish
// there, and under any producer's name: a key is of a role.
func producerOf(subject string) string {
	name := subject[strings.LastIndexByte(subject, '.')+1:]
	if CheckName("producer", name) != nil {
		return OtherProducers
	}
	return name
}
