package streams

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The errors that callers tell apart. Every other error is wrapped as it comes.
var (
	// ErrNoRun is returned when the broker holds nothing under the run's name.
	ErrNoRun = errors.New("no such run")
	// ErrName is returned when a name holds characters that a subject or a stream name cannot carry.
	ErrName = errors.New("illegal name")
	// ErrIncompatible is returned when a stream exists with a configuration that this build cannot work with.
	ErrIncompatible = errors.New("incompatible stream configuration")
	// ErrStreamRecreated is returned when a stream is not the stream that a position was taken from.
	ErrStreamRecreated = errors.New("stream was recreated")
	// ErrStreamTruncated is returned when a stream has lost messages: it ends before a position that was taken from it.
	ErrStreamTruncated = errors.New("stream was truncated")
	// ErrDenied is returned when the broker refuses a subject to this role.
	ErrDenied = errors.New("permission denied")
	// ErrLeaseEnded is returned when Done, Return or Release is called on a lease that has ended.
	ErrLeaseEnded = errors.New("lease already ended")
	// ErrNotInFlight is returned when a feed never returned a sequence, or the sequence is acked already.
	ErrNotInFlight = errors.New("sequence is not in flight")
	// ErrTooLarge is returned when a message is larger than all its parts may be together.
	ErrTooLarge = errors.New("message too large")
	// ErrClosed is returned when the source, the feed or the connection was closed.
	ErrClosed = errors.New("closed")
	// ErrIdle is returned when no message came for as long as the feed may wait.
	ErrIdle = errors.New("nothing came")
	// ErrFenced is returned when another trainer has taken the run, or has published other weights.
	ErrFenced = errors.New("fenced by another trainer")
	// ErrNoWeights is returned when no policy version is published, or the version asked for is not.
	ErrNoWeights = errors.New("no weights published")
	// ErrServerTooOld is returned when the broker is a nats-server older than [OldestServer].
	ErrServerTooOld = errors.New("the broker's nats-server is too old")
)

// errInterrupted is the error of a call during which the connection was lost and made again.
var errInterrupted = errors.New("interrupted by a reconnection")

// RecreatedError says which stream was recreated, and when. It is an [ErrStreamRecreated].
type RecreatedError struct {
	Stream string
	// Want is when the stream of the position was created, Have when the stream of today was.
	Want, Have time.Time
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("stream %s was recreated: the position is of the stream created %s, this one was created %s",
		e.Stream, e.Want.UTC().Format(time.RFC3339Nano), e.Have.UTC().Format(time.RFC3339Nano))
}

// Is says that it is an [ErrStreamRecreated].
func (e *RecreatedError) Is(target error) bool { return target == ErrStreamRecreated }

// lost are the broker's own words for a stream that is not there: a bucket is a stream too, and a reader goes with its stream.
var lost = []error{
	jetstream.ErrStreamNotFound, jetstream.ErrBucketNotFound,
	jetstream.ErrConsumerNotFound, jetstream.ErrConsumerDoesNotExist, jetstream.ErrConsumerDeleted,
}

// IsLost is whether an error means that the broker lost a stream, or messages of it: the stream was made anew, lacks messages that
// it held, or is absent with its readers, as after a loss of the broker's store.
func IsLost(err error) bool {
	return errors.Is(err, ErrStreamRecreated) || errors.Is(err, ErrStreamTruncated) ||
		slices.ContainsFunc(lost, func(target error) bool { return errors.Is(err, target) })
}
