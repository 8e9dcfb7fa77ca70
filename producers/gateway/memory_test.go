package gateway

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A session keeps the conversation that its agent sends again with each request once: it kept each request whole, whose bytes are as the
// square of the turns.
func TestAConversationIsKeptOnce(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	const turns, size = 8, 4 << 10
	var said []string
	for i := range turns {
		said = append(said, "user", fmt.Sprint(i)+strings.Repeat(" word", size/5))
		said = append(said, "assistant", h.said(t, said...))
	}
	kept, bytes := map[*byte]bool{}, 0
	for _, r := range h.session.stored {
		for _, m := range r.messages {
			if at := unsafe.StringData(m.Content); !kept[at] {
				kept[at] = true
				bytes += len(m.Content)
			}
		}
	}
	require.Len(t, h.session.stored, turns)
	require.Less(t, bytes, 2*turns*size)
}
