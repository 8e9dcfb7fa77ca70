package producers

import (
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Served is a ticket that a producer served, with the times that no trajectory carries.
type Served struct {
	Ticket *schemas.Ticket
	// Delivery counts the times that the ticket was leased, from 1.
	Delivery int
	Producer string
	// Leased and Ended bound the work on it.
	Leased, Ended time.Time
	// Trajectory is the stored trajectory; nil where none was stored.
	Trajectory *schemas.Trajectory
	// Err is why nothing was stored; nil where something was.
	Err error
	// Turns are the moves of the agent, as far as it came.
	Turns []ServedTurn
	// Publishing is when the trajectory was ready, Stored when the broker had it; zero where it did not come to that.
	Publishing, Stored time.Time
}

// ServedTurn is a turn: from the request for its first token to its last token.
type ServedTurn struct {
	Began, Sampled time.Time
	Tokens         int
	Calls          []ServedCall
}

// ServedCall is a call of a tool.
type ServedCall struct {
	Tool   string
	Began  time.Time
	Took   time.Duration
	Failed bool
}

// turnTimes returns when the episode's turns and calls were made.
func (e *Episode) turnTimes() []ServedTurn {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]ServedTurn, len(e.turns))
	for i, t := range e.turns {
		out[i] = ServedTurn{Began: t.began, Sampled: t.sampledAt, Tokens: t.End - t.Start}
		for n, call := range t.Turn.Calls {
			out[i].Calls = append(out[i].Calls, ServedCall{call.Tool, t.called[n], call.Duration, call.Failed})
		}
	}
	return out
}
