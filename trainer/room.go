package trainer

import (
	"context"
	"fmt"
)

// crowded is how full the stream, or what may be pending of it, may be while the trainer waits for it.
const crowded = 0.5

// Ack releases the messages that the checkpoint holds or has trained on.
func (i *intake) Ack(ctx context.Context) error {
	if len(i.account.settled) == 0 {
		return nil
	}
	if err := i.feed.Ack(ctx, i.account.settled...); err != nil {
		return fmt.Errorf("ack the batch: %w", err)
	}
	i.account.settled = nil
	return nil
}

// Purge frees the stream of what no checkpoint needs that the run can go back to.
func (i *intake) Purge(ctx context.Context) error {
	identity := i.feed.Identity()
	upTo := i.store.SafePurge(identity.Stream, identity.Created, i.losses)
	if upTo <= i.purged {
		return nil
	}
	if err := i.store.MarkPurged(identity.Stream, identity.Created, upTo); err != nil {
		return err
	}
	if err := i.feed.Purge(ctx, upTo); err != nil {
		return fmt.Errorf("purge the stream up to %d: %w", upTo, err)
	}
	i.purged = upTo
	return nil
}

// relieve makes room when nothing comes, for it may be that nothing can: what fills the stream may be larger than
// Messages reckons with, or nothing but messages that the feed itself refused; and the feed gives no more where too many
// messages wait for their groups.
func (i *intake) relieve(ctx context.Context) error {
	passed := i.feed.Passed()
	if passed <= i.purged {
		return nil
	}
	full, err := i.feed.Fullness(ctx)
	if err != nil {
		return fmt.Errorf("look whether the stream is full: %w", err)
	}
	if full < crowded {
		return nil
	}
	i.assembler.Pass(passed)
	i.account.delivered = max(i.account.delivered, passed)
	return i.renew(ctx)
}

// renew makes room by a checkpoint that is written anew with the messages in it that wait for their groups, so that the
// stream can be purged of everything delivered so far. Otherwise a step that drops more than the stream holds would wait
// for ever: producers for room, the trainer for a batch.
func (i *intake) renew(ctx context.Context) error {
	fresh := i.assembler.Carry()
	if err := i.saveAnew(ctx); err != nil {
		return err
	}
	i.account.carry(fresh)
	if err := i.Ack(ctx); err != nil {
		return err
	}
	return i.Purge(ctx)
}

// Recorded says that a checkpoint has been written whose record tells of everything so far.
func (i *intake) Recorded() {
	i.issuer.rejected, i.issuer.dropped = nil, nil
	i.account.ended = 0
}
