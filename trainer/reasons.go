package trainer

import (
	"slices"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/batch"
)

// reasons are all that a trajectory can be refused or passed over for, sorted.
func reasons() []string {
	all := []string{
		string(streams.ReasonMalformed), string(streams.ReasonVersion), string(streams.ReasonOversized),
		string(batch.ReasonStale), string(batch.ReasonDuplicate), string(batch.ReasonForeign),
		string(batch.ReasonPoisoned), string(batch.ReasonIncomplete), string(batch.ReasonZeroVariance), string(batch.ReasonLost),
	}
	slices.Sort(all)
	return all
}
