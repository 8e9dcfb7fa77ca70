package producers

import (
	"errors"
	"fmt"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// ErrUnavailable is returned, wrapped, by a tool, an agent or a reward when the service behind it is away. The policy is shown nothing of
// it: the ticket is tried again.
var ErrUnavailable = errors.New("unavailable")

// ErrNoRoom is returned, wrapped, by a wait for a session or a sandbox that nobody had room for: all are full, or away. It is an
// ErrUnavailable. The ticket has not failed: it goes back. But where its episode had a place of its own and waited for another, it has.
var ErrNoRoom = fmt.Errorf("%w: nobody has room", ErrUnavailable)

// ErrMayHaveRun is returned, wrapped beside [ErrUnavailable], by a tool whose call went out and has no answer: nobody can say whether it
// happened. With a journal, a call that may change something outside is then not made again, and its episode ends.
var ErrMayHaveRun = errors.New("the call may have happened")

// ErrPrompt is returned, wrapped, by the opening of a session when the prompt's data for the tool is at fault. Another try would fail
// in the same way: the ticket is not tried again, and its sample is closed with the reason.
var ErrPrompt = errors.New("the prompt's data are at fault")

// StoppedError is how the methods of an Episode tell an agent that the rollout is over because of a limit. The
// agent returns it and the trajectory is published with its reason.
type StoppedError struct {
	Reason schemas.StopReason
}

func (s *StoppedError) Error() string { return fmt.Sprintf("the episode ended: %s", s.Reason) }

// Why a running episode is cut off; they are the causes of its context.
var (
	errLeaseLost = errors.New("the lease lapsed")
	errStale     = errors.New(schemas.WhyStale)
	errCancelled = errors.New(schemas.WhyCancelled)
	errDraining  = errors.New("the producer is draining")
	errTimedOut  = errors.New("the episode's time limit")
	// errJournalStands: a ticket that seemed new has a journal, for the broker has lost its deliveries. The episode begins again with it.
	errJournalStands = errors.New("the ticket has a journal already")
)

// errEpisodeOver marks a ticket that comes again though its trajectory is stored, or its sample closed: the acknowledgement was lost.
var errEpisodeOver = errors.New("the episode is over")

// errUnserved marks a rollout whose time passed while it waited for the first token: the engines are full, or away.
var errUnserved = errors.New("no engine served the episode in time")

// ErrNotBegun is returned, wrapped, by an agent that has done nothing for an episode, and wants another in its place, or cannot begin any:
// it then wraps ErrUnavailable too, and is reported as a failure. The ticket has not failed: it goes back.
var ErrNotBegun = errors.New("the episode was not begun")

// ErrAbandoned is returned, wrapped, by a [Roll] that nobody can run any more, as where the version to be evaluated is no longer stored.
// It is not tried again.
var ErrAbandoned = errors.New("the evaluation ticket is abandoned")

// NothingSampled reports whether a rollout failed because there was no room for a single token of the policy's.
func NothingSampled(err error) bool { return errors.Is(err, errNothingSampled) }

// TimedOut reports whether a rollout failed because its time passed before the policy sampled a token.
func TimedOut(err error) bool { return errors.Is(err, errTimedOut) }

// Unserved reports whether a rollout failed because the engines are full or away: its ticket has not failed.
func Unserved(err error) bool {
	return errors.Is(err, errUnserved) || errors.Is(err, generate.ErrUnserved)
}

// errUnknownTask marks a ticket of a task that this producer has no environment for. Another producer may have a sandbox, so the ticket
// goes back, until it was delivered Config.MaxDeliver times.
var errUnknownTask = errors.New("no environment for task")

// errNothingSampled marks a rollout without a single token of the policy's: there is nothing to train on.
var errNothingSampled = errors.New("no token was sampled")
