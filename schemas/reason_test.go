package schemas

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What was wrong with a message itself is filed for people to look at; what was in order and not used is only recorded.
func TestOnlyWhatIsWrongWithAMessageIsARefusal(t *testing.T) {
	t.Parallel()
	for reason, refused := range map[Reason]bool{
		ReasonStale: true, ReasonDuplicate: true, ReasonForeign: true, ReasonPoisoned: true,
		ReasonIncomplete: false, ReasonZeroVariance: false, ReasonLost: false,
	} {
		require.Equal(t, refused, reason.Refusal(), "%s", reason)
	}
}
