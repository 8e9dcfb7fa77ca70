package schemas

import "slices"

// Evaluation is a producer's answer to an evaluation ticket: a [Ticket] that the trainer's process sends to a single producer, to be
// sampled by exactly the ticket's PolicyVersion. It goes to whoever asked and is stored nowhere, so that nothing of it is trained on.
type Evaluation struct {
	Run string `msgpack:"run"`
	// Ticket is the ticket's id.
	Ticket   string            `msgpack:"ticket"`
	Producer string            `msgpack:"producer"`
	Outcome  EvaluationOutcome `msgpack:"outcome"`
	// Error is why there is no trajectory; "" where there is a trajectory.
	Error string `msgpack:"error,omitempty"`
	// Trajectory is the rollout in its own wire form; nil for every outcome but done.
	Trajectory []byte `msgpack:"trajectory,omitempty"`
	// Turns are the moves of the rollout in text, in order.
	Turns []EvaluationTurn `msgpack:"turns,omitempty"`
}

// EvaluationTurn is a move of the agent: its text and, where it called tools, their names, the arguments, their observations and why they
// failed; "" without a call. Of several calls each is a part of the text.
type EvaluationTurn struct {
	Text        string `msgpack:"text"`
	Tool        string `msgpack:"tool,omitempty"`
	Arguments   string `msgpack:"arguments,omitempty"`
	Observation string `msgpack:"observation,omitempty"`
	Error       string `msgpack:"error,omitempty"`
}

// EvaluationOutcome is the outcome of an evaluation ticket at a producer.
type EvaluationOutcome string

// The outcomes. A producer that is full, is draining or finds no engine has not failed the ticket, which is asked again.
const (
	EvaluationDone     EvaluationOutcome = "done"     // there is a trajectory
	EvaluationNothing  EvaluationOutcome = "nothing"  // the policy had no room for a single token
	EvaluationFull     EvaluationOutcome = "full"     // the producer has as many evaluations as it takes
	EvaluationDraining EvaluationOutcome = "draining" // the producer stops, or is paused
	EvaluationUnserved EvaluationOutcome = "unserved" // no engine sampled the version in time, or no tool worker had room
	EvaluationFailed   EvaluationOutcome = "failed"   // the machinery failed
	EvaluationRefused  EvaluationOutcome = "refused"  // the ticket is wrong, or of a task that the producer does not have
)

// evaluationOutcomes are all of them.
var evaluationOutcomes = []EvaluationOutcome{
	EvaluationDone, EvaluationNothing, EvaluationFull, EvaluationDraining, EvaluationUnserved, EvaluationFailed, EvaluationRefused,
}

// Validate names every broken invariant of the answer; nil if there is none. Errors wrap [ErrInvalid].
func (e *Evaluation) Validate() error {
	f := &faults{path: "evaluation"}
	f.checkName("run", e.Run)
	f.checkName("ticket", e.Ticket)
	f.checkName("producer", e.Producer)
	known := slices.Contains(evaluationOutcomes, e.Outcome)
	switch {
	case !known:
		f.addFault("outcome", "%.40q: no such outcome", string(e.Outcome))
	case (e.Outcome == EvaluationDone) != (len(e.Trajectory) > 0):
		f.addFault("trajectory", "%d bytes with outcome %s", len(e.Trajectory), e.Outcome)
	case e.Outcome == EvaluationDone && e.Error != "":
		f.addFault("error", "%.40q with outcome %s", e.Error, e.Outcome)
	}
	return f.joinFaults()
}
