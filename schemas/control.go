package schemas

import "time"

// Control holds for the whole run; the trainer and operators write it. The control written last holds.
type Control struct {
	Run string `msgpack:"run"`
	// Paused stops producers from taking new tickets; running rollouts go on.
	Paused bool `msgpack:"paused"`
	// Draining asks every role to finish its work and stop.
	Draining bool `msgpack:"draining"`
	// PolicyVersion is the trainer's newest published version.
	PolicyVersion int64 `msgpack:"policy_version"`
	// MinVersion is the oldest version that can still be used: rollouts with an older token are cancelled.
	MinVersion int64 `msgpack:"min_version"`
	// Eta is the staleness bound in versions; Depth the pipeline depth, Depth <= Eta.
	Eta   int `msgpack:"eta"`
	Depth int `msgpack:"depth"`
	// Cancelled lists groups whose running rollouts are to be abandoned.
	Cancelled []string  `msgpack:"cancelled,omitempty"`
	At        time.Time `msgpack:"at"`
	// Limits are the limits of episodes that operators have set, sorted by task and key, each pair once. Tickets that are issued from then
	// on carry them; a limit that is not listed is as configured.
	Limits []Limit `msgpack:"limits,omitempty"`
}

// Event reports something that happened, for people and dashboards; nothing depends on it.
type Event struct {
	Run  string    `msgpack:"run"`
	Type EventType `msgpack:"type"`
	At   time.Time `msgpack:"at"`
	// Role and Worker name the sender.
	Role   string `msgpack:"role"`
	Worker string `msgpack:"worker"`
	// Step and PolicyVersion are set where they mean something, else 0.
	Step          int64 `msgpack:"step,omitempty"`
	PolicyVersion int64 `msgpack:"policy_version,omitempty"`
	// Metrics is flat, keyed as metrics.jsonl is.
	Metrics map[string]float64 `msgpack:"metrics,omitempty"`
	Message string             `msgpack:"message,omitempty"`
}

// EventType names an event.
type EventType string

// The event types.
const (
	EventStepDone         EventType = "step_done"
	EventVersionPublished EventType = "version_published"
	EventVersionApplied   EventType = "version_applied"
	EventWorkerJoined     EventType = "worker_joined"
	EventWorkerHere       EventType = "worker_here" // a worker is still there; MetricAgain says when it tells again
	EventWorkerLeft       EventType = "worker_left"
	EventEvaluated        EventType = "evaluated"
	EventRunDone          EventType = "run_done"
	// EventColdStart is a step of a supervised start.
	EventColdStart EventType = "cold_start"
	// EventDropped counts, while a step gathers its batch, the groups that the selection dropped because the rewards of their samples were
	// equal. Message is the fault where no group was kept, else "".
	EventDropped EventType = "dropped"
	// EventWaiting says what the trainer waits for beside trajectories, such as the role weir archive; an empty Message says that it goes on.
	EventWaiting EventType = "waiting"
	// EventFailing is a producer's report that the episodes of a task fail, or succeed again: a [Failing].
	EventFailing EventType = "failing"
)

// MetricAgain is the key, in the metrics of a worker's events, of the seconds within which the worker tells of itself again. A worker that
// says goodbye with [EventWorkerLeft] is not waited for; an event without the key promises nothing.
const MetricAgain = "again_seconds"
