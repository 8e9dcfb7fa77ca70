package generate

import (
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"
)

// Run has the methods of a run that a generate call needs; a [streams.Run] has them.
type Run interface {
	// Name is the run's name, which every request carries.
	Name() string
	// GenerateSubject is the subject that all engines of the run share.
	GenerateSubject() string
	NATS() *nats.Conn
	Log() *slog.Logger
}

const (
	queueGroup = "engines"
	headerOp   = "Weir-Generate"
	// headerCall names a call for its cancellation: the reply subject that the engine sees may have been made up by the broker.
	headerCall = "Weir-Call"
	opCancel   = "cancel" // data: the name of the call
	opForget   = "forget" // data: the episode

	// unknownEpisode is the episode of a refusal whose request could not be read.
	unknownEpisode = "?"
)

// Pinned is the run for calls that name the only version which may sample: they have a subject of their own, so that an engine that
// samples with its newest version never gets such a call. An engine serves it beside the run itself; both sides wrap their run.
func Pinned(run Run) Run { return pinned{run} }

type pinned struct{ Run }

// GenerateSubject has two tokens more than the subject that all engines share, so that no engine's own subject is equal to it.
func (p pinned) GenerateSubject() string { return p.Run.GenerateSubject() + ".at.version" }

// isPinned says whether a run is for pinned calls.
func isPinned(run Run) bool {
	_, is := run.(pinned)
	return is
}

// engineSubject reaches a single engine, controlSubject all of them. The latter has a token more than an engine's, so that no
// engine's name can be equal to it.
func engineSubject(shared, engine string) string { return shared + "." + engine }
func controlSubject(shared string) string        { return shared + ".all.control" }

var (
	// ErrFailed is returned when an engine refused or failed a call, and no other engine would do better.
	ErrFailed = errors.New("generate call failed")
	// ErrElsewhere is returned, wrapped, by a handler when another engine may serve the same call.
	ErrElsewhere = errors.New("another engine may serve this call")
	// ErrUnserved is returned when no engine serves a call whose caller is about to stop.
	ErrUnserved = errors.New("no engine serves the call")
)
