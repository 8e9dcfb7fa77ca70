package trainer

import (
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// dropRecord returns a group that is not trained on in the form of a record.
func dropRecord(g batch.Group, reason schemas.Reason, reissue bool) checkpoint.RecordDrop {
	drop := checkpoint.RecordDrop{Group: g.ID(), Cursor: g.Cursor, Reason: reason, Reissue: reissue, Size: g.Size, Source: g.Source()}
	if g.Ticket != nil {
		drop.Task, drop.Prompt = g.Ticket.Task, g.Ticket.Prompt.ID
	}
	return drop
}
