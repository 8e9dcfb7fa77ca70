package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A message that outlived a stream's return from an older copy, and was lost with the store afterwards, is gone and not lost.
func TestAMessageThatOutlivedACutMayBeGoneLater(t *testing.T) {
	t.Parallel()
	made := time.Unix(5, 0)
	w := &Witness{Gone: []Gone{{Created: made, Life: 1, From: 8}, {Created: made, Life: 2, From: 3}}}
	for _, c := range []struct {
		sequence uint64
		life     int
		want     bool
	}{{9, 1, true}, {5, 1, true}, {2, 1, false}, {5, 2, true}, {2, 2, false}, {9, 3, false}} {
		require.Equal(t, c.want, w.isGone(Seen{Sequence: c.sequence, Created: made, Life: c.life}), "%+v", c)
	}
	require.False(t, w.isGone(Seen{Sequence: 9, Created: made.Add(time.Second), Life: 1}))
}
