package trainer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// roleKeeper has the role weir archive keep the messages: it asks, and believes the role's words of this stream alone.
type roleKeeper struct {
	deps     Deps
	feed     Feed
	required bool
	losses   int64
	// owner is the run's id.
	owner string
	// version is the trainer's version. countLoss is told how often the stream has lost messages, where the archive knows of a further loss.
	version   func() int64
	countLoss func(losses int64)

	// asked is the sequence up to which the role was asked, skipped that up to which messages were given up or purged before.
	asked, skipped uint64
	lagging        bool
	end            func()

	mu   sync.Mutex
	kept *streams.Kept
	// failed is why the role is not followed any more, nil while it is.
	failed error
	// changed is closed, and made anew, when any of them changes.
	changed chan struct{}
}

// tellAfter is how long the run waits for the role before it says so, and asks again: a broker that came back with an older store has
// forgotten the request.
const tellAfter = 5 * time.Second

// openRoleKeeper follows the words of the role until the keeper is closed.
func (i *intake) openRoleKeeper(ctx context.Context, owner string) *roleKeeper {
	k := &roleKeeper{
		deps: i.deps, feed: i.feed, required: i.cfg.Archive.Required, losses: i.losses, owner: owner, changed: make(chan struct{}),
	}
	k.version = func() int64 { return i.assembler.Version() }
	k.countLoss = func(losses int64) { i.losses = losses }
	k.skipped = i.store.PurgedUpTo(i.feed.Identity().Stream, i.feed.Identity().Created)
	following, cancel := context.WithCancel(ctx)
	var task sync.WaitGroup
	task.Go(func() {
		err := k.deps.Stream.FollowKept(following, func(kept *streams.Kept) { k.note(func() { k.kept = kept }) })
		if err != nil && following.Err() == nil {
			k.note(func() { k.failed = fmt.Errorf("follow the archive: %w", err) })
		}
	})
	k.end = func() {
		cancel()
		task.Wait()
	}
	return k
}

// note makes a change and wakes a waiting step.
func (k *roleKeeper) note(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
	close(k.changed)
	k.changed = make(chan struct{})
}

// word is the role's last word: up to where it has kept this stream, and a channel that is closed at its next word.
type word struct {
	*streams.Kept
	upTo uint64
	next <-chan struct{}
}

func (k *roleKeeper) readWord() (word, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := word{k.kept, k.kept.UpTo(k.newRequest(0)), k.changed}
	k.deps.Metrics.setBehind(k.asked - min(k.asked, w.upTo))
	return w, k.failed
}

func (k *roleKeeper) newRequest(upTo uint64) *streams.KeepRequest {
	r := &streams.KeepRequest{
		Position: k.feed.Identity(), Losses: k.losses, Known: k.feed.Known(), Owner: k.owner,
	}
	r.Sequence = upTo
	return r
}

// noteLoss counts a loss of messages that the archive alone knows of, and asks anew: what comes at the lost sequences is kept apart.
func (k *roleKeeper) noteLoss(ctx context.Context, w word, upTo uint64) (counted bool, err error) {
	identity := k.feed.Identity()
	if w.Kept == nil || w.Ahead == nil || w.Stream != identity.Stream || !w.Created.Equal(identity.Created) || w.Losses != k.losses {
		return false, nil
	}
	k.deps.Log.Warn("the archive has messages that the trajectory stream has lost: the loss is counted, and what comes in their place is kept",
		"archive", w.Owner, "why", w.Failure)
	k.mu.Lock()
	k.losses = max(k.losses, *w.Ahead) + 1
	k.mu.Unlock()
	k.countLoss(k.losses)
	k.asked = 0
	return true, k.askToKeep(ctx, upTo)
}

// checkStream returns an error for which streams.IsLost is true where the stream is not the stream of this trainer any more: the role waits
// for the request of what took its place. A broker that is away is waited for.
func (k *roleKeeper) checkStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tellAfter)
	defer cancel()
	if _, err := k.feed.ReadStored(ctx, 0, 0, 0); streams.IsLost(err) {
		return fmt.Errorf("wait for weir archive: %w", err)
	}
	return nil
}

// askToKeep asks the role to keep the messages up to a sequence, unless it was asked.
func (k *roleKeeper) askToKeep(ctx context.Context, upTo uint64) error {
	if upTo <= k.asked {
		return nil
	}
	if err := k.deps.Stream.AskToKeep(ctx, k.newRequest(upTo)); err != nil {
		return fmt.Errorf("ask the archive to keep messages up to %d: %w", upTo, err)
	}
	k.asked = upTo
	return nil
}

func (k *roleKeeper) keepBatch(ctx context.Context, upTo uint64) error {
	if err := k.askToKeep(ctx, upTo); err != nil || !k.required {
		return err
	}
	return k.awaitKept(ctx, upTo)
}

func (k *roleKeeper) awaitRoom(ctx context.Context, upTo uint64) error { return k.keepBatch(ctx, upTo) }

// awaitKept returns when the role has kept the messages up to a sequence.
func (k *roleKeeper) awaitKept(ctx context.Context, upTo uint64) error {
	tell := time.NewTicker(tellAfter)
	defer tell.Stop()
	defer k.deps.Metrics.setAwaited(false)
	told := false
	for {
		now, err := k.readWord()
		if err == nil && now.Kept != nil && now.Failure != "" {
			err = k.checkStream(ctx)
		}
		if err != nil {
			return err
		}
		if counted, err := k.noteLoss(ctx, now, upTo); err != nil {
			return err
		} else if counted {
			continue
		}
		if now.upTo >= upTo {
			if told {
				k.deps.Log.Info("the archive has kept the messages that the run waited for", "kept_up_to", now.upTo)
				k.deps.reportWait(k.version(), "")
			}
			return nil
		}
		k.deps.Metrics.setAwaited(true)
		select {
		case <-now.next:
		case <-tell.C:
			if !told {
				k.deps.Log.Error("the run waits for weir archive: trainer.archive.required is set, and messages are not kept",
					"up_to", upTo, "kept_up_to", now.upTo, "archive", now.describeArchive())
				k.deps.reportWait(k.version(), "the run waits for weir archive, as trainer.archive.required is set: "+now.describeArchive())
			}
			told, k.asked = true, 0
			if err := k.checkStream(ctx); err != nil {
				return err
			}
			if err := k.askToKeep(ctx, upTo); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reportWait tells observers of the run the cause for which the step after a version waits; "" is that it goes on.
func (d Deps) reportWait(version int64, what string) {
	d.Observer(schemas.Event{
		Run: d.Stream.Name(), Type: schemas.EventWaiting, At: d.Now().UTC(), Role: "trainer", Step: version + 1, PolicyVersion: version,
		Message: what,
	})
}

// describeArchive says which process the archive is, and why it keeps nothing.
func (w word) describeArchive() string {
	switch {
	case w.Kept == nil:
		return "none has ever come: start weir archive"
	case w.Failure != "":
		return w.Owner + ": " + w.Failure
	}
	return w.Owner + " has the seat: see whether it still runs"
}

// allowPurge gives messages up that the role has not kept only where the archive is not required and the stream is half full.
//
// Invariant: where a role keeps the messages and the archive is required, nothing is purged that the role has not told it has kept.
func (k *roleKeeper) allowPurge(ctx context.Context, upTo uint64) (uint64, error) {
	if err := k.askToKeep(ctx, upTo); err != nil {
		return 0, err
	}
	now, err := k.readWord()
	if err == nil {
		_, err = k.noteLoss(ctx, now, upTo)
	}
	if err != nil {
		return 0, err
	}
	if now.upTo >= upTo {
		if k.lagging {
			k.deps.Log.Info("the archive keeps again what the stream is purged of", "kept_up_to", now.upTo)
		}
		k.lagging = false
		return upTo, nil
	}
	if k.required {
		return now.upTo, nil
	}
	full, err := k.feed.StreamFullness(ctx)
	if err != nil {
		return 0, fmt.Errorf("look whether the stream is full: %w", err)
	}
	if full < crowdedShare {
		return now.upTo, nil
	}
	lost := upTo - min(upTo, max(now.upTo, k.skipped))
	k.skipped = upTo
	k.deps.Metrics.countUnkept(lost)
	if !k.lagging {
		k.deps.Log.Error("the run goes on without weir archive: the stream is half full, and messages are purged that are not kept; "+
			"trainer.archive.required would have the run wait", "messages", lost, "kept_up_to", now.upTo, "archive", now.describeArchive())
	}
	k.lagging = true
	return upTo, nil
}

func (k *roleKeeper) lacks(sequence uint64) bool {
	now, _ := k.readWord()
	if sequence > now.upTo {
		return true
	}
	for _, g := range now.Gaps {
		if g.After < sequence && sequence <= g.Last {
			return true
		}
	}
	return false
}

func (k *roleKeeper) close() error {
	k.end()
	return nil
}
