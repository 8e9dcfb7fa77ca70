package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/batch"
)

// keeper keeps the stream's messages in the archive before they are purged. A nil keeper keeps none.
type keeper struct {
	deps     Deps
	required bool
	archive  *messages.Archive
	// failing is whether the last write failed.
	failing bool
}

// openKeeper goes on with the archive of the stream that the feed reads.
func (i *intake) openKeeper() error {
	if err := i.closeKeeper(); err != nil {
		return err
	}
	if i.cfg.Archive.Messages.Bytes == 0 {
		return nil
	}
	identity := i.feed.Identity()
	life := messages.Life{Created: identity.Created.UTC(), Losses: i.losses}
	store := i.deps.Messages
	switch {
	case store != nil:
	case i.cfg.Archive.Messages.InBucket():
		return fmt.Errorf("trainer.archive.messages.dir is %s: trainer.Deps.Messages must be its store", i.cfg.Archive.Messages.Dir)
	default:
		store = i.cfg.Archive.MessagesFolder(i.store.Dir())
	}
	a, err := messages.Open(store, i.cfg.Archive.Messages, i.deps.Stream.Name(), life, i.deps.Log)
	if err != nil {
		return fmt.Errorf("open the archive of messages: %w", err)
	}
	i.keeper = &keeper{deps: i.deps, required: i.cfg.Archive.Required, archive: a}
	return nil
}

func (i *intake) closeKeeper() error {
	if i.keeper == nil {
		return nil
	}
	k := i.keeper
	i.keeper = nil
	return k.archive.Close()
}

// KeepBatch keeps the messages of a batch before the step trains on them, where that is required.
//
// Invariant: where the archive is required, no step trains on a message that was not kept.
func (i *intake) KeepBatch(ctx context.Context, b *batch.Batch) error {
	if i.keeper == nil || !i.keeper.required || b == nil {
		return nil
	}
	highest, used := uint64(0), b.Deliveries()
	for _, d := range used {
		highest = max(highest, d.Sequence)
	}
	if err := i.keeper.keepUpTo(ctx, i.feed, highest); err != nil {
		return err
	}
	for _, d := range used {
		if i.keeper.archive.Lacks(d.Sequence) {
			return fmt.Errorf("trainer.archive.required: message %d, trajectory %s, left the stream before it was kept, as by a purge by hand, or "+
				"before trainer.archive.messages was set: start again, so that its prompt is issued again, or set it to false until it is used up", d.Sequence, d.Trajectory.ID)
		}
	}
	return nil
}

// keepUpTo keeps the messages up to a sequence. A message that cannot be written is an error only where the archive is required.
func (k *keeper) keepUpTo(ctx context.Context, feed Feed, upTo uint64) error {
	if k == nil {
		return nil
	}
	lost, err := k.archive.Keep(ctx, storedSource{feed}, upTo)
	if lost > 0 {
		k.deps.Metrics.countUnkept(lost)
		k.deps.Log.Warn("messages left the stream before the archive could keep them", "messages", lost, "kept_up_to", k.archive.Last())
	}
	switch {
	case err != nil && ctx.Err() != nil: // the run is ended while it waits for room
		return ctx.Err()
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
	k.failing = false
	return nil
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
