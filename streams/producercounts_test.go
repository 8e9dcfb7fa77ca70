package streams

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Reject may be called while Next refuses a message of its own.
func TestRefusedMessagesAreCountedAtTheSameTime(t *testing.T) {
	t.Parallel()
	var c producerCounts
	var counting sync.WaitGroup
	for range 8 {
		counting.Go(func() {
			for range 1000 {
				c.countMessage("p1")
			}
		})
	}
	counting.Wait()
	require.Equal(t, map[string]int{"p1": 8000}, c.takeCounts())
}
