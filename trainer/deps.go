package trainer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer/learner"
)

// Stream is what the trainer needs of a run's streams. All calls are idempotent by the ids in what they carry. OverStreams
// makes one of a streams.Run, whose types and errors it speaks.
type Stream interface {
	// Name is the run's name.
	Name() string
	// Take makes this trainer the run's only one, at once: whatever an earlier trainer does then fails with
	// streams.ErrFenced, and so does what this trainer does once a later one has taken the run. from is the position that
	// the checkpoint goes on from, nil for none; a run whose messages after it are purged is not taken. It is called again
	// after an error that streams.IsLost knows.
	Take(ctx context.Context, from *streams.Position) error
	// Check fails with streams.ErrFenced when another trainer has taken the run.
	Check(ctx context.Context) error
	// Watch returns streams.ErrFenced as soon as another trainer has taken the run, and nil when ctx ends.
	Watch(ctx context.Context) error
	Issue(ctx context.Context, tickets ...*schemas.Ticket) error
	// OutstandingTickets counts the tickets that were issued and are not done, leased ones included.
	OutstandingTickets(ctx context.Context) (int, error)
	// TicketCounts says how many of them wait to be leased.
	TicketCounts(ctx context.Context) (streams.TicketCounts, error)
	// Feed opens the trajectories from just after a position; nil is the beginning. The error is one that streams.IsLost
	// knows when the stream is not that of the position, or has lost messages that it held: known is the last of them.
	Feed(ctx context.Context, from *streams.Position, known streams.Mark, maxPending int) (Feed, error)
	// PublishWeights publishes the whole shards of m, of which the encoding alone is set, and returns a copy of m that names them.
	PublishWeights(ctx context.Context, m *schemas.Manifest, shards weights.ShardSource) (*schemas.Manifest, error)
	// SpoolIn names a folder for what lies on the disk while a version is published.
	SpoolIn(dir string)
	// Deltas says whether a version's shards are asked for again when the next version is published.
	Deltas() bool
	// ManifestFits fails with streams.ErrTooLarge where a manifest is larger than a message may be.
	ManifestFits(m *schemas.Manifest) error
	// UpdateControl calls change with the control that holds, nil if there is none, and puts what it returns unless that
	// is nil. It calls again where somebody else put one in between.
	UpdateControl(ctx context.Context, change func(now *schemas.Control) *schemas.Control) error
	// Control is the last one put. The error is streams.ErrNoControl if there is none.
	Control(ctx context.Context) (*schemas.Control, error)
	// Published is the newest version that was published, 0 if there is none.
	Published(ctx context.Context) (int64, error)
	// FollowControl calls with the last control and with each later one until ctx ends.
	FollowControl(ctx context.Context, changed func(*schemas.Control)) error
}

// Feed delivers trajectories and group-closed markers in the order of the stream. A *streams.Feed is one.
type Feed interface {
	// Next blocks until there is a delivery. It may fail with streams.ErrIdle when there is none for a while, and be called
	// again.
	Next(ctx context.Context) (*streams.Delivery, error)
	// Passed is the sequence up to which every message was delivered, or refused by the feed itself.
	Passed() uint64
	// Behind says whether the stream holds a message that Next has not come to.
	Behind(ctx context.Context) (bool, error)
	// Refused counts the messages that the feed itself refused since it was asked last.
	Refused() map[schemas.Reason]int
	// RefusedBy counts all messages that were refused since it was asked last, by the producer that their subjects name.
	RefusedBy() map[string]int
	// Fullness is how full the stream is, or how near the feed is to its bound of pending messages, from 0 to 1.
	Fullness(ctx context.Context) (float64, error)
	// SetMaxPending changes the bound of pending messages that Stream.Feed was given.
	SetMaxPending(ctx context.Context, n int) error
	// Ack says that messages need not be delivered again to this feed. It removes nothing.
	Ack(ctx context.Context, sequences ...uint64) error
	// RejectSoon files a message of this feed with the rejected ones and acks it, together with others and by File at the latest.
	RejectSoon(ctx context.Context, d *streams.Delivery, reason schemas.Reason, detail string) error
	// File files what waits to be filed, also of what the feed itself refused.
	File(ctx context.Context) error
	// RejectCarried files a trajectory that an earlier feed delivered and a checkpoint has carried since.
	RejectCarried(ctx context.Context, sequence uint64, t *schemas.Trajectory, reason schemas.Reason, detail string) error
	// Purge removes every message up to a sequence.
	Purge(ctx context.Context, upTo uint64) error
	// Identity names the stream, and Known the last message that the feed knows of.
	Identity() streams.Position
	Known() streams.Mark
	// Close ends the feed; what is not acked stays.
	Close()
}

// version is a policy version to publish: the engine holds it.
type version struct {
	number int64
	// at is when its checkpoint was saved, so that publishing it again sends the same manifest.
	at time.Time
}

// Deps are what Run works with. An estimator or a loss of the program itself is no part of them: it stands in the
// configuration, Config.Advantage.Foreign and Config.Loss.Foreign, so that the configuration is checked with it.
type Deps struct {
	Engine gpu.Engine
	// NewEngine makes an engine of a given shape, to which the trainer gives its weights and which it closes: the frozen
	// policy that a KL term is taken against, and a critic of its own. It may be nil where the configuration has neither.
	NewEngine func(gpu.Config) (gpu.Engine, error)
	Stream    Stream
	Prompts   Prompts
	// Opening gives the tokens that every rollout of a ticket begins with, so that a trajectory that begins otherwise, or
	// marks one of them as sampled, is refused. nil, and no tokens, where the agent's beginning is not known. Only the first
	// segment is held against it: an agent may write its later contexts anew.
	Opening func(*schemas.Ticket) []int32
	// Demonstrations may be nil when the configuration has no cold start.
	Demonstrations learner.Demonstrations
	// Settings are what the run is configured with, by key: each step's record says with which it was trained, and a run
	// that goes on with others says so. nil notes none.
	Settings map[string]string
	// Tokenizer is the tokenizer.json that checkpoints carry; nil if there is none.
	Tokenizer []byte
	// Files are those of the model folder that the policy began with, which every checkpoint carries as they are; nil if it
	// began with none.
	Files *hf.Files
	Log   *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// Observer is called once a step, during the cold start and while groups are dropped, on the loop's goroutine; it may
	// be nil.
	Observer func(schemas.Event)
	// Ended is told of every trajectory that a step used, or that was refused or dropped, on the loop's goroutine, and must not wait;
	// it may be nil.
	Ended func(Ending)
	// Reported is the newest step whose end Observer was called with and has kept. A trainer that starts from a later step,
	// because it was killed before it called Observer, reports that step first, with the numbers in the checkpoint. nil
	// reports none.
	Reported func() int64
	// After is called on the loop's goroutine when a stage of a step is done, with its name: renew, batch, update,
	// commit, the parts of checkpoint.Store, save, ack, purge, publish, control, issue. It is where a test ends the process; it
	// may be nil.
	After func(stage string)
	// Now defaults to time.Now. No decision depends on it but that of Config.GroupTimeout.
	Now func() time.Time
}

func (d Deps) withDefaults() (Deps, error) {
	var errs []error
	for _, need := range []struct {
		name   string
		absent bool
	}{{"Engine", d.Engine == nil}, {"Stream", d.Stream == nil}, {"Prompts", d.Prompts == nil}} {
		if need.absent {
			errs = append(errs, errors.New("trainer needs "+need.name))
		}
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.After == nil {
		d.After = func(string) {}
	}
	if d.Observer == nil {
		d.Observer = func(schemas.Event) {}
	}
	return d, errors.Join(errs...)
}

// longest is how long a sequence of the policy can be.
func (d Deps) longest() int {
	longest := d.Engine.Config().MaxPositions
	if most := d.Engine.Limits().MaxTokens; most > 0 {
		longest = min(longest, most) // a sequence is never split
	}
	return longest
}

// learner are what the learner works with, and a folder for what it writes.
func (d Deps) learner(scratch string, keep bool) learner.Deps {
	return learner.Deps{
		Engine: d.Engine, NewEngine: d.NewEngine, Scratch: scratch, Tokenizer: d.Tokenizer, KeepTokens: keep, Log: d.Log, Now: d.Now,
	}
}
