package streams

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The errors that callers tell apart. All others are wrapped as they come.
var (
	// ErrNoRun: the broker holds nothing under this run's name.
	ErrNoRun = errors.New("no such run")
	// ErrName: a name holds characters that a subject or a stream name cannot carry.
	ErrName = errors.New("illegal name")
	// ErrIncompatible: a stream exists with a configuration that this build cannot work with.
	ErrIncompatible = errors.New("incompatible stream configuration")
	// ErrStreamRecreated: the stream is not the one that a position was taken from.
	ErrStreamRecreated = errors.New("stream was recreated")
	// ErrStreamTruncated: the stream ends before a position that was taken from it: it lost messages.
	ErrStreamTruncated = errors.New("stream was truncated")
	// ErrDenied: the broker refuses this subject to this role.
	ErrDenied = errors.New("permission denied")
	// ErrLeaseEnded: Done, Return or Release was called on a lease before.
	ErrLeaseEnded = errors.New("lease already ended")
	// ErrNotInFlight: a sequence was never returned by this feed, or is acked already.
	ErrNotInFlight = errors.New("sequence is not in flight")
	// ErrTooLarge: a message is larger than even its parts may be together.
	ErrTooLarge = errors.New("message too large")
	// ErrClosed: the source, feed or connection was closed.
	ErrClosed = errors.New("closed")
	// ErrIdle: nothing has come for as long as the feed was told to wait.
	ErrIdle = errors.New("nothing came")
	// ErrFenced: another trainer went ahead. It has the run's seat, or it has published other weights.
	ErrFenced = errors.New("fenced by another trainer")
	// ErrNoWeights: no policy version is published, or not the one asked for.
	ErrNoWeights = errors.New("no weights published")
)

// errInterrupted: the connection was lost and made again while a call was under way.
var errInterrupted = errors.New("interrupted by a reconnection")

// RecreatedError says which stream was recreated, and when. It is an [ErrStreamRecreated].
type RecreatedError struct {
	Stream string
	// Want is the creation time of the position, Have that of the stream as it is.
	Want, Have time.Time
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("stream %s was recreated: the position is of the stream created %s, this one was created %s",
		e.Stream, e.Want.UTC().Format(time.RFC3339Nano), e.Have.UTC().Format(time.RFC3339Nano))
}

// Is says that it is an [ErrStreamRecreated].
func (e *RecreatedError) Is(target error) bool { return target == ErrStreamRecreated }

// IsLost says whether an error means that a stream is not what it was: made anew, without messages that it held, or not there, as
// after a loss of the broker's store.
func IsLost(err error) bool {
	return errors.Is(err, ErrStreamRecreated) || errors.Is(err, ErrStreamTruncated) || errors.Is(err, jetstream.ErrStreamNotFound)
}
