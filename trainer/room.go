package trainer

import (
	"context"
	"fmt"
)

// crowdedShare is how full the stream, or the bound of pending messages, may be while the trainer waits.
const crowdedShare = 0.5

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

// Purge removes the messages that no kept checkpoint needs.
func (i *intake) Purge(ctx context.Context) error {
	identity := i.feed.Identity()
	upTo := i.store.SafePurge(identity.Stream, identity.Created, i.losses)
	if upTo <= i.purged {
		return nil
	}
	if i.keeper != nil {
		var err error
		if upTo, err = i.keeper.allowPurge(ctx, upTo); err != nil {
			return fmt.Errorf("keep what is purged: %w", err)
		}
		if upTo <= i.purged {
			return nil
		}
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

// relieveStream makes room when nothing comes, because a full stream may be the cause: its messages may be larger than
// Config.StreamMessages reckons with, or all refused by the feed itself. The feed gives no more, too, where too many messages wait for
// their groups.
func (i *intake) relieveStream(ctx context.Context) error {
	passed := i.feed.Passed()
	if passed <= i.purged {
		return nil
	}
	full, err := i.feed.Fullness(ctx)
	if err != nil {
		return fmt.Errorf("look whether the stream is full: %w", err)
	}
	if full < crowdedShare {
		return nil
	}
	if i.keeper != nil {
		if err := i.keeper.awaitRoom(ctx, passed); err != nil {
			return err
		}
	}
	i.assembler.Pass(passed)
	i.account.delivered = max(i.account.delivered, passed)
	return i.renewCheckpoint(ctx)
}

// renewCheckpoint makes room: it writes the checkpoint anew, together with the messages that wait for their groups, so that the stream can
// be purged of everything delivered so far. Otherwise a step that drops more than the stream holds would wait for ever: producers for room,
// the trainer for a batch.
func (i *intake) renewCheckpoint(ctx context.Context) error {
	fresh := i.assembler.Carry()
	if err := i.saveAnew(ctx); err != nil {
		return err
	}
	i.account.recordCarried(fresh)
	if err := i.Ack(ctx); err != nil {
		return err
	}
	return i.Purge(ctx)
}

// Recorded is called after a checkpoint was written whose record has every refusal and drop so far.
func (i *intake) Recorded() {
	i.issuer.rejected, i.issuer.dropped = nil, nil
	i.account.ended = 0
}
