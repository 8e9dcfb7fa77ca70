package trainer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// keeper keeps the stream's messages before they are purged, itself or by a role of its own.
type keeper interface {
	// keepBatch is called before a step trains on messages up to a sequence: where the archive is required they are kept when it returns.
	keepBatch(ctx context.Context, upTo uint64) error
	// allowPurge returns up to where the stream may be purged now, at most up to a sequence.
	allowPurge(ctx context.Context, upTo uint64) (uint64, error)
	// awaitRoom is called where nothing comes because the stream may be full: where the archive is required it returns when everything up to
	// a sequence may be purged.
	awaitRoom(ctx context.Context, upTo uint64) error
	// lacks reports whether a message left the stream before it was kept.
	lacks(sequence uint64) bool
	close() error
}

// openKeeper goes on with the archive of the stream that the feed reads.
func (i *intake) openKeeper(ctx context.Context) error {
	if err := i.closeKeeper(); err != nil {
		return err
	}
	cfg := i.cfg.Archive
	if cfg.Messages.Bytes == 0 {
		return nil
	}
	file := messages.OwnerFile(filepath.Join(i.store.Dir(), archive.Folder))
	id, err := messages.ReadOwnerID(file)
	if err != nil {
		return fmt.Errorf("open the archive of messages: %w", err)
	}
	if cfg.Messages.ByRole() {
		i.keeper = i.openRoleKeeper(ctx, id)
		return nil
	}
	identity := i.feed.Identity()
	life := messages.Life{Created: identity.Created.UTC(), Losses: i.losses}
	folder := cfg.MessagesFolder(i.store.Dir())
	store := i.deps.Messages
	switch {
	case store != nil:
	case cfg.Messages.InBucket():
		return fmt.Errorf("trainer.archive.messages.dir is %s: trainer.Deps.Messages must be its store", cfg.Messages.Dir)
	default:
		store = folder
	}
	unlock, err := folder.Lock()
	if err != nil {
		return fmt.Errorf("open the archive of messages: %w: stop it, or set trainer.archive.messages.by to role if it is weir archive", err)
	}
	owner := messages.Owner{
		Run: i.deps.Stream.Name(), ID: id, File: file, Inside: cfg.Messages.Dir == "" && i.deps.Messages == nil, Streams: i.readStreams,
	}
	a, err := messages.Open(store, cfg.Messages, owner, life, i.deps.Log)
	if err != nil {
		return errors.Join(fmt.Errorf("open the archive of messages: %w", err), unlock())
	}
	k := &ownKeeper{deps: i.deps, feed: i.feed, required: cfg.Required, archive: a, unlock: unlock}
	k.version = func() int64 { return i.assembler.Version() }
	a.Waits = k.reportFull
	i.keeper = k
	return nil
}

// readStreams reads from the record which streams the run had, by when they were made.
func (i *intake) readStreams() (out []time.Time, err error) {
	for r, err := range checkpoint.Records(i.store.Dir()) {
		if err != nil {
			return nil, err
		}
		if !r.Created.IsZero() && !slices.ContainsFunc(out, r.Created.Equal) {
			out = append(out, r.Created)
		}
	}
	return out, nil
}

// findArchived makes known the last message of the checkpoint's stream that the trainer's archive has, where the checkpoint knows of an
// earlier message: the stream may have lost it since, or the run and its broker were restored from an older copy than the archive. It
// returns how often the stream had lost messages as far as the archive knows; more often than the checkpoint knows is an error for which
// streams.IsLost is true.
func (i *intake) findArchived(s *checkpoint.State, known *streams.Mark) (losses int64, err error) {
	cfg := i.cfg.Archive
	if cfg.Messages.Bytes == 0 || cfg.Messages.ByRole() || s.Stream == "" {
		return 0, nil
	}
	store := messages.Segments(cfg.MessagesFolder(i.store.Dir()))
	if i.deps.Messages != nil {
		store = i.deps.Messages
	}
	newest, err := messages.Newest(store, s.Created)
	switch {
	case err != nil:
		i.deps.Log.Warn("whether the archive knows of later messages than the checkpoint is not known", "err", err)
		return 0, nil
	case newest == nil || newest.Losses < s.Losses:
		return 0, nil
	case newest.Losses > s.Losses:
		return newest.Losses, fmt.Errorf("%w: the archive has messages of it from after %d such losses, and the checkpoint knows of %d",
			streams.ErrStreamTruncated, newest.Losses, s.Losses)
	case newest.Sequence > known.Sequence:
		*known = streams.Mark{Sequence: newest.Sequence, Stored: newest.At}
	}
	return newest.Losses, nil
}

func (i *intake) closeKeeper() error {
	if i.keeper == nil {
		return nil
	}
	k := i.keeper
	i.keeper = nil
	return k.close()
}

// KeepBatch keeps the messages of a batch before the step trains on them, where that is required.
//
// Invariant: where the archive is required, no step trains on a message that was not kept.
func (i *intake) KeepBatch(ctx context.Context, b *batch.Batch) error {
	if i.keeper == nil || b == nil {
		return nil
	}
	highest, used := uint64(0), b.Deliveries()
	for _, d := range used {
		highest = max(highest, d.Sequence)
	}
	if err := i.keeper.keepBatch(ctx, highest); err != nil || !i.cfg.Archive.Required {
		return err
	}
	for _, d := range used {
		if i.keeper.lacks(d.Sequence) {
			return fmt.Errorf("trainer.archive.required: message %d, trajectory %s, left the stream before it was kept, as by a purge by hand, or "+
				"before trainer.archive.messages was set: start again, so that its prompt is issued again, or set it to false until it is used up",
				d.Sequence, d.Trajectory.ID)
		}
	}
	return nil
}

// KeepRest keeps the messages that were read and are not purged yet: at the end of a run no purge follows that would keep them. Where the
// role weir archive keeps the messages, the rest stays in the stream.
func (i *intake) KeepRest(ctx context.Context) error {
	k, own := i.keeper.(*ownKeeper)
	if !own {
		return nil
	}
	if err := k.keepUpTo(ctx, i.feed.Passed()); err != nil {
		return fmt.Errorf("keep what was read: %w", err)
	}
	return nil
}

// ownKeeper keeps the messages in the trainer's process.
type ownKeeper struct {
	deps     Deps
	feed     Feed
	required bool
	archive  *messages.Archive
	unlock   func() error
	// version is the trainer's version.
	version func() int64
	// waiting is whether it was told that the run waits for room.
	waiting bool
	// failing is whether the last write failed.
	failing bool
}

func (k *ownKeeper) keepBatch(ctx context.Context, upTo uint64) error {
	if !k.required {
		return nil
	}
	return k.keepUpTo(ctx, upTo)
}

func (k *ownKeeper) allowPurge(ctx context.Context, upTo uint64) (uint64, error) {
	return upTo, k.keepUpTo(ctx, upTo)
}

func (k *ownKeeper) awaitRoom(context.Context, uint64) error { return nil }

func (k *ownKeeper) lacks(sequence uint64) bool { return k.archive.Lacks(sequence) }

func (k *ownKeeper) close() error { return errors.Join(k.archive.Close(), k.unlock()) }

// keepUpTo keeps the messages up to a sequence. A message that cannot be written is an error only where the archive is required.
func (k *ownKeeper) keepUpTo(ctx context.Context, upTo uint64) error {
	lost, err := k.archive.Keep(ctx, storedSource{k.feed}, upTo)
	if lost > 0 {
		k.deps.Metrics.countUnkept(lost)
		k.deps.Log.Warn("messages left the stream before the archive could keep them", "messages", lost, "kept_up_to", k.archive.Last())
	}
	switch {
	case err != nil && ctx.Err() != nil: // the run is ended while it waits for room
		return ctx.Err()
	case errors.Is(err, messages.ErrOtherRun) && k.required:
		return fmt.Errorf("trainer.archive.required: %w", err)
	case errors.Is(err, messages.ErrNotWritten) && k.required:
		return fmt.Errorf("trainer.archive.required: %w: make room and start again, or set it to false", err)
	case errors.Is(err, messages.ErrNotWritten):
		if !k.failing {
			k.deps.Log.Error("the run goes on without the archive: make room; trainer.archive.required would stop it", "err", err)
		}
		k.failing = true
		return nil
	case err != nil:
		return err
	}
	if k.waiting {
		k.deps.reportWait(k.version(), "")
	}
	k.failing, k.waiting = false, false
	return nil
}

// reportFull tells observers of the run that it waits for room in the archive's spool.
func (k *ownKeeper) reportFull(err error) {
	k.waiting = true
	k.deps.reportWait(k.version(), "the run waits until the archive's bucket has taken segments, as trainer.archive.required is set: "+
		strings.ReplaceAll(err.Error(), "\n", ": "))
}

// storedSource is a feed as the archive reads it.
type storedSource struct{ feed Feed }

// ReadStored implements messages.Source.
func (s storedSource) ReadStored(ctx context.Context, after, upTo uint64, bytes int) (messages.Span, []messages.Message, error) {
	span, err := s.feed.ReadStored(ctx, after, upTo, bytes)
	if err != nil {
		return messages.Span{}, nil, err
	}
	out := make([]messages.Message, len(span.Messages))
	for i, m := range span.Messages {
		out[i] = messages.Message(m)
	}
	return messages.Span{After: span.After, Last: span.Last}, out, nil
}
