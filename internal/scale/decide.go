// Package scale says how many producers and inference consumers a run can use, from the work that waits.
package scale

import (
	"fmt"

	"github.com/weir-rl/weir/internal/check"
)

// Signal is the work that waits in a run: the signal by which weir scale, KEDA's triggers and people act. docs/scaling.md says where each
// number stands in Prometheus. The JSON is that of weir status.
type Signal struct {
	// TrainerWaits is the share of the last step that the trainer waited for trajectories, 0 to 1; 1 before the first step.
	TrainerWaits float64 `json:"trainer_waits"`
	// TicketsWaiting are tickets that no producer has taken, TicketsLeased are tickets that producers work on.
	TicketsWaiting int `json:"tickets_waiting"`
	TicketsLeased  int `json:"tickets_leased"`
	// OldestTicketSeconds is the age of the oldest ticket that is not done; 0 where there is none.
	OldestTicketSeconds float64 `json:"oldest_ticket_seconds"`
	// CallsWaiting are calls to the policy that wait for a slot, CallsRunning are calls that are generating. Both are nil where nobody
	// tells: the broker does not know them, the engines' own metrics do.
	CallsWaiting *int `json:"calls_waiting,omitempty"`
	CallsRunning *int `json:"calls_running,omitempty"`
}

// Workers are how many there are, or should be, of each role.
type Workers struct {
	Producers int `json:"producers"`
	Inference int `json:"inference"`
}

// Bounds hold the numbers of workers.
type Bounds struct {
	// Min and Max bound each role's number, both included.
	Min, Max Workers
	// Starved is the share of a step from which on the trainer waits too long. Zero is no sensible value; the default is 0.2.
	Starved float64
	// Idle is the share below which the trainer is the slow part, so that there may be fewer workers. Defaults to 0.02.
	Idle float64
	// Calm is how many looks in a row must find the trainer the slow part before a worker is taken away. Defaults to 12.
	Calm int
}

// DefaultBounds are 1 to 8 producers and 1 to 4 inference consumers.
func DefaultBounds() Bounds {
	return Bounds{Min: Workers{1, 1}, Max: Workers{8, 4}, Starved: 0.2, Idle: 0.02, Calm: 12}
}

// Validate reports every fault.
func (b Bounds) Validate() error {
	return check.All(
		check.That(b.Min.Producers >= 1 && b.Max.Producers >= b.Min.Producers && b.Max.Producers <= 10_000, "producers", "%d to %d: want two numbers between 1 and 10000, the smaller first", b.Min.Producers, b.Max.Producers),
		check.That(b.Min.Inference >= 1 && b.Max.Inference >= b.Min.Inference && b.Max.Inference <= 1_000, "inference", "%d to %d: want two numbers between 1 and 1000, the smaller first", b.Min.Inference, b.Max.Inference),
		check.That(b.Starved > b.Idle && b.Starved <= 1, "starved", "%v: must be above idle and at most 1", b.Starved),
		check.That(b.Idle >= 0, "idle", "%v: must not be negative", b.Idle),
		check.That(b.Calm >= 1, "calm", "%d: must be at least 1", b.Calm),
	)
}

// Decider decides look by look.
type Decider struct {
	bounds Bounds
	calm   int
}

// NewDecider decides within bounds that are valid.
func NewDecider(b Bounds) *Decider { return &Decider{bounds: b} }

// Decide says how many workers there should be, and why. It adds to a role that others wait for, up to twice its number at a time; it takes
// a worker away when the trainer has been the slow part for a while. Invariant: the numbers stay within the bounds.
func (d *Decider) Decide(now Workers, s Signal) (Workers, string) {
	want, why := d.decideWorkers(now, s)
	want.Producers = min(max(want.Producers, d.bounds.Min.Producers), d.bounds.Max.Producers)
	want.Inference = min(max(want.Inference, d.bounds.Min.Inference), d.bounds.Max.Inference)
	return want, why
}

func (d *Decider) decideWorkers(now Workers, s Signal) (Workers, string) {
	if s.TrainerWaits < d.bounds.Idle {
		d.calm++
		if d.calm < d.bounds.Calm {
			return now, "the trainer is the slow part"
		}
		d.calm = 0
		// Tickets that nobody has taken say that producers are busy, whoever is the slow part.
		if s.TicketsWaiting == 0 && now.Producers > d.bounds.Min.Producers {
			now.Producers--
			return now, "the trainer has been the slow part for a while, and no ticket waits: one producer fewer"
		}
		if s.CallsWaiting != nil && *s.CallsWaiting == 0 && now.Inference > d.bounds.Min.Inference {
			now.Inference--
			return now, "the trainer has been the slow part for a while, and no call waits: one inference consumer fewer"
		}
		return now, "the trainer is the slow part"
	}
	d.calm = 0
	if s.TrainerWaits < d.bounds.Starved {
		return now, "nobody waits long"
	}
	// The queue nearest to the tokens first: more producers would only make it longer.
	if s.CallsWaiting != nil && s.CallsRunning != nil && *s.CallsWaiting > max(1, *s.CallsRunning/4) {
		more := max(1, min(now.Inference, *s.CallsWaiting*now.Inference/max(1, *s.CallsRunning)))
		now.Inference += more
		return now, fmt.Sprintf("the trainer waits %.0f %% of a step, and %d calls wait for a slot beside %d that run: more inference consumers", 100*s.TrainerWaits, *s.CallsWaiting, *s.CallsRunning)
	}
	if s.TicketsWaiting > 0 {
		more := now.Producers
		if s.TicketsLeased > 0 { // as many again as the waiting tickets would keep busy
			more = max(1, min(now.Producers, s.TicketsWaiting*now.Producers/s.TicketsLeased))
		}
		now.Producers += max(1, more)
		return now, fmt.Sprintf("the trainer waits %.0f %% of a step, and %d tickets wait, the oldest for %.0f s: more producers", 100*s.TrainerWaits, s.TicketsWaiting, s.OldestTicketSeconds)
	}
	return now, "the trainer waits, and every ticket is being worked on: workers cannot help; slow tools, long episodes or the bound on staleness (trainer.eta, trainer.depth) hold it back"
}
