package runfolder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
)

// Newcomer's friction 14: refused and dropped mean the same in the record's words as in those of a step's metrics.
func TestRefusedAndDroppedMeanTheSameEverywhere(t *testing.T) {
	t.Parallel()
	for _, reason := range []schemas.Reason{
		schemas.ReasonStale, schemas.ReasonDuplicate, schemas.ReasonForeign, schemas.ReasonPoisoned, schemas.ReasonIncomplete, schemas.ReasonZeroVariance,
	} {
		dropped, refused := report.Untrained(map[string]float64{"rejected/" + string(reason): 3, "reward/mean": 1})
		require.Equal(t, FateOf(reason) == FateDropped, dropped == 3, reason)
		require.Equal(t, FateOf(reason) == FateRefused, refused == 3, reason)
	}
}
