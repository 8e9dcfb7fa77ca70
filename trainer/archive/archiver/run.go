package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// Stream has the operations that an archiver needs on a run's streams; *streams.Run implements it.
type Stream interface {
	// Name is the run's name.
	Name() string
	// FollowKeepRequests calls fn with the newest request of the trainer and with each newer request, until ctx ends or fn fails.
	FollowKeepRequests(ctx context.Context, fn func(*streams.KeepRequest) error) error
	// TakeArchive makes the caller the run's archive at once.
	TakeArchive(ctx context.Context) (*streams.ArchiveSeat, error)
	// ReadStored reads messages of the trajectory stream: see [streams.Run.ReadStored].
	ReadStored(ctx context.Context, of streams.Position, known streams.Mark, after, upTo uint64, bytes int) (*streams.StoredSpan, error)
}

// Deps are the dependencies of Run.
type Deps struct {
	Stream Stream
	// Store is where the segments are kept; a bucket has a messages.Spool before it. The caller holds the folder's lock.
	Store messages.Store
	Log   *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// Ready is called with nil when the archiver has the run's seat and keeps the messages of each request, and with the reason while it
	// cannot. It may be nil.
	Ready func(error)
	// After is called with the name of each stage that is done: seat, read, keep, tell. Tests end the process in it; it may be nil.
	After func(stage string)
}

// Run keeps the messages that the run's trainer asks for until ctx ends, which is no error. It fails with [streams.ErrArchiveFenced] when
// another process has taken the run's archive. Where the store takes no segment, as on a full disk, Run says so to the trainer and tries
// again.
func Run(ctx context.Context, cfg messages.Config, deps Deps) error {
	if deps.Ready == nil {
		deps.Ready = func(error) {}
	}
	if deps.After == nil {
		deps.After = func(string) {}
	}
	seat, err := deps.Stream.TakeArchive(ctx)
	if err != nil {
		return endOf(ctx, err)
	}
	deps.After("seat")
	deps.Ready(nil)
	a := &archiver{cfg: cfg, Deps: deps, seat: seat, newest: make(chan *streams.KeepRequest, 1)}
	defer a.closeArchive()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return seat.Watch(running) })
	group.Go(func() error {
		return deps.Stream.FollowKeepRequests(running, func(r *streams.KeepRequest) error {
			a.replaceRequest(r)
			return nil
		})
	})
	group.Go(func() error { return a.keepRequests(running) })
	return endOf(ctx, group.Wait())
}

// endOf is nil where a process stopped because it was asked to.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// archiver is an archiver at work.
type archiver struct {
	Deps
	cfg  messages.Config
	seat *streams.ArchiveSeat
	// newest holds the newest request that is not taken up.
	newest chan *streams.KeepRequest

	// archive is that of the life, and of the owner, of the last request, nil before the first.
	archive *messages.Archive
	life    messages.Life
	owner   string
	failing bool
	// checked is whether the stream is known to hold, or to have purged, the messages of the life that the archive has.
	checked bool
}

// replaceRequest puts a request in the place of an earlier request that is not taken up. A single goroutine calls it.
func (a *archiver) replaceRequest(r *streams.KeepRequest) {
	select {
	case <-a.newest:
	default:
	}
	a.newest <- r
}

// The pauses before a failed request is tried again.
const (
	pauseFirst = time.Second
	pauseMost  = 30 * time.Second
)

// keepRequests keeps the messages of each request. A request that failed is tried again, unless a newer request has come.
func (a *archiver) keepRequests(ctx context.Context) error {
	var request *streams.KeepRequest
	pause := pauseFirst
	for {
		var again <-chan time.Time
		if request != nil {
			again = time.After(pause)
			pause = min(2*pause, pauseMost)
		}
		select {
		case <-ctx.Done():
			return nil
		case request = <-a.newest:
		case <-again:
		}
		done, err := a.keepRequest(ctx, request)
		if err != nil {
			return err
		}
		if done {
			request, pause = nil, pauseFirst
		}
	}
}

// keepRequest keeps the messages of a request, and tells how far it has come; done is false where it is to be tried again.
func (a *archiver) keepRequest(ctx context.Context, r *streams.KeepRequest) (done bool, err error) {
	if err := a.openLife(r); err != nil {
		return false, err
	}
	before, lost := a.archive.Last(), uint64(0)
	ahead, fault := a.checkStream(ctx, r)
	if fault == nil {
		lost, fault = a.archive.Keep(ctx, source{a.Stream, r, a.After}, r.Sequence)
	}
	if ctx.Err() != nil {
		return false, endOf(ctx, fault)
	}
	a.After("keep")
	kept := a.describeKept(r, fault)
	kept.Ahead = ahead
	a.Metrics.addKept(a.archive.Last()-before, lost, behindOf(r, &kept))
	if lost > 0 {
		a.Log.Warn("messages left the stream before the archive could keep them", "messages", lost,
			"kept_up_to", a.archive.Last(), "gaps", kept.Gaps)
	}
	if err := a.judgeFault(fault, r, &kept); err != nil {
		return false, err
	}
	if err := a.seat.Tell(ctx, kept); err != nil {
		return false, endOf(ctx, err)
	}
	a.After("tell")
	if streams.IsLost(fault) {
		a.closeArchive() // what is there by the next request is read anew
	}
	// A request of a stream that is gone is not tried again: the trainer finds that out, and asks for the stream that took its place.
	return fault == nil || streams.IsLost(fault), nil
}

// judgeFault returns a fault that ends the archiver; others are told, and their request is tried again.
func (a *archiver) judgeFault(fault error, r *streams.KeepRequest, kept *streams.Kept) error {
	switch {
	case fault == nil && a.failing:
		a.Log.Info("the archive keeps what it is asked for again", "kept_up_to", kept.Sequence)
	case fault == nil:
	case !errors.Is(fault, messages.ErrNotWritten) && !streams.IsLost(fault):
		return fault
	case !a.failing:
		a.Log.Error("the archive does not keep what the trainer asks for; it is tried again", "up_to", r.Sequence,
			"kept_up_to", kept.Sequence, "err", fault)
	}
	if fault != nil {
		a.Metrics.countFailure(behindOf(r, kept))
	}
	if a.failing != (fault != nil) {
		a.failing = fault != nil
		a.Ready(fault)
	}
	return nil
}

// openLife opens the archive of the stream of a request, between two losses of messages.
func (a *archiver) openLife(r *streams.KeepRequest) error {
	life := messages.Life{Created: r.Created.UTC(), Losses: r.Losses}
	if a.archive != nil && a.life == life && a.owner == r.Owner {
		return nil
	}
	a.closeArchive()
	owner := messages.Owner{Run: a.Stream.Name(), ID: r.Owner}
	archive, err := messages.Open(a.Store, a.cfg, owner, life, a.Log)
	if err != nil {
		return fmt.Errorf("open the archive of messages: %w", err)
	}
	a.archive, a.life, a.owner, a.checked = archive, life, r.Owner, false
	a.Log.Info("keeping the messages of the trajectory stream", "created", life.Created, "losses", life.Losses,
		"kept_up_to", archive.Last())
	return nil
}

// checkStream returns an error for which streams.IsLost is true where the archive has messages that the stream of a request has lost, and
// the trainer does not know, as where run and broker were restored from an older copy: other messages come in their place. ahead is how
// often the stream had lost messages by then, as far as the archive knows; nil without such an error.
func (a *archiver) checkStream(ctx context.Context, r *streams.KeepRequest) (ahead *int64, err error) {
	if a.checked {
		return nil, nil
	}
	newest, err := messages.Newest(a.Store, r.Created)
	switch {
	case err != nil:
		a.Log.Warn("whether the archive has messages that the stream has lost is not known", "err", err)
		return nil, nil
	case newest == nil || newest.Losses < r.Losses:
		a.checked = true
		return nil, nil
	case newest.Losses > r.Losses:
		err = fmt.Errorf("%w: it had been so %d times before, and %d times as the trainer knows", streams.ErrStreamTruncated,
			newest.Losses, r.Losses)
	default:
		_, err = a.Stream.ReadStored(ctx, r.Position, streams.Mark{Sequence: newest.Sequence, Stored: newest.At}, 0, 0, 0)
	}
	if a.checked = err == nil; errors.Is(err, streams.ErrStreamTruncated) {
		return &newest.Losses, fmt.Errorf("%w: the archive has messages that the stream has lost, as where a broker comes back with an "+
			"older store: the trainer counts the loss, and asks anew", err)
	}
	return nil, err
}

func (a *archiver) closeArchive() {
	if a.archive != nil {
		_ = a.archive.Close() // it frees memory alone
		a.archive = nil
	}
}

// mostGaps bounds the gaps that are told: the oldest are joined.
const mostGaps = 32

// describeKept is how far the archive has kept the stream of a request. Messages that the stream does not have any more, of which nothing
// after them is there either, are a gap at the end.
func (a *archiver) describeKept(r *streams.KeepRequest, fault error) streams.Kept {
	kept := streams.Kept{Position: r.Position, Losses: r.Losses}
	kept.Sequence = a.archive.Last()
	for _, g := range a.archive.Gaps() {
		kept.Gaps = append(kept.Gaps, streams.Gap(g))
	}
	if fault == nil && kept.Sequence < r.Sequence {
		kept.Gaps = append(kept.Gaps, streams.Gap{After: kept.Sequence, Last: r.Sequence})
		kept.Sequence = r.Sequence
	}
	if extra := len(kept.Gaps) - mostGaps; extra > 0 {
		kept.Gaps[extra].After = kept.Gaps[0].After
		kept.Gaps = kept.Gaps[extra:]
	}
	if streams.IsLost(fault) {
		kept.Sequence, kept.Gaps = 0, nil // of which messages these are is not known
	}
	if fault != nil {
		kept.Failure = fault.Error()
	}
	return kept
}

// behindOf counts the messages of a request that are not kept.
func behindOf(r *streams.KeepRequest, kept *streams.Kept) uint64 {
	return r.Sequence - min(r.Sequence, kept.Sequence)
}

// source is the stream of a request as an archive reads it.
type source struct {
	stream  Stream
	request *streams.KeepRequest
	after   func(stage string)
}

// ReadStored implements messages.Source.
func (s source) ReadStored(ctx context.Context, after, upTo uint64, bytes int) (messages.Span, []messages.Message, error) {
	span, err := s.stream.ReadStored(ctx, s.request.Position, s.request.Known, after, upTo, bytes)
	if err != nil {
		return messages.Span{}, nil, err
	}
	s.after("read")
	out := make([]messages.Message, len(span.Messages))
	for i, m := range span.Messages {
		out[i] = messages.Message(m)
	}
	return messages.Span{After: span.After, Last: span.Last}, out, nil
}
