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
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/learner"
)

// Stream has the operations that the trainer needs on a run's streams. All calls are idempotent by the ids of their messages. OverStreams
// makes a Stream of a streams.Run; types and errors are those of package streams.
type Stream interface {
	// Name is the run's name.
	Name() string
	// Take makes this trainer the run's only trainer, at once: every later call of an earlier trainer fails with streams.ErrFenced, and so
	// does every call of this trainer once a later trainer has taken the run. from is the position that the checkpoint goes on from, nil
	// for none; a run whose messages after it are purged is not taken. Take is called again after an error for which streams.IsLost is
	// true.
	Take(ctx context.Context, from *streams.Position) error
	// Check fails with streams.ErrFenced when another trainer has taken the run.
	Check(ctx context.Context) error
	// Watch returns streams.ErrFenced as soon as another trainer has taken the run, and nil when ctx ends.
	Watch(ctx context.Context) error
	Issue(ctx context.Context, tickets ...*schemas.Ticket) error
	// OutstandingTickets counts the tickets that were issued and are not done, leased ones included.
	OutstandingTickets(ctx context.Context) (int, error)
	// TicketCounts returns how many of them wait to be leased.
	TicketCounts(ctx context.Context) (streams.TicketCounts, error)
	// Feed opens the trajectories from just after a position; nil is the beginning. streams.IsLost is true of the error when the stream is
	// not that of the position, or has lost messages that it held: known is the last of them.
	Feed(ctx context.Context, from *streams.Position, known streams.Mark, maxPending int) (Feed, error)
	// PublishWeights publishes the whole shards of m, of which the encoding alone is set, and returns a copy of m that names them.
	PublishWeights(ctx context.Context, m *schemas.Manifest, shards weights.ShardSource) (*schemas.Manifest, error)
	// SpoolIn sets a folder for temporary files while a version is published.
	SpoolIn(dir string)
	// Deltas reports whether a version's shards are read again when the next version is published.
	Deltas() bool
	// ManifestFits fails with streams.ErrTooLarge where a manifest is larger than a message may be.
	ManifestFits(m *schemas.Manifest) error
	// UpdateControl calls change with the control in force, nil if there is none, and puts the result unless that is nil. It calls change
	// again where another process put a control in between.
	UpdateControl(ctx context.Context, change func(now *schemas.Control) *schemas.Control) error
	// Control is the control that was put last. The error is streams.ErrNoControl if there is none.
	Control(ctx context.Context) (*schemas.Control, error)
	// Published is the newest version that was published, 0 if there is none.
	Published(ctx context.Context) (int64, error)
	// BringNewest brings the files of the newest published version into a folder, verified against its manifest. Adapters fail.
	BringNewest(ctx context.Context, dir string) (paths []string, err error)
	// FollowControl calls changed with the last control and with each later control until ctx ends.
	FollowControl(ctx context.Context, changed func(*schemas.Control)) error
	// AskToKeep asks the role weir archive to keep messages; FollowKept calls kept with how far that role has kept, and with each newer word
	// of it, until ctx ends. They are called where Config.Archive names the role.
	AskToKeep(ctx context.Context, request *streams.KeepRequest) error
	FollowKept(ctx context.Context, kept func(*streams.Kept)) error
}

// Feed delivers trajectories and group-closed markers in the order of the stream. *streams.Feed implements it.
type Feed interface {
	// Next blocks until there is a delivery. It may fail with streams.ErrIdle when there is none for a while, and be called
	// again.
	Next(ctx context.Context) (*streams.Delivery, error)
	// Passed is the sequence up to which every message was delivered, or refused by the feed itself.
	Passed() uint64
	// Behind reports whether the stream holds a message that Next has not come to.
	Behind(ctx context.Context) (bool, error)
	// Refused counts the messages that the feed itself refused since the last call.
	Refused() map[schemas.Reason]int
	// RefusedBy counts all messages that were refused since the last call, by the producer that their subjects name.
	RefusedBy() map[string]int
	// Fullness is how full the stream is, or how near the feed is to its bound of pending messages, from 0 to 1.
	Fullness(ctx context.Context) (float64, error)
	// StreamFullness is how full the stream alone is, from 0 to 1.
	StreamFullness(ctx context.Context) (float64, error)
	// SetMaxPending changes the bound of pending messages that Stream.Feed was given.
	SetMaxPending(ctx context.Context, n int) error
	// Ack acks messages, so that they are not delivered again to this feed. It removes nothing.
	Ack(ctx context.Context, sequences ...uint64) error
	// RejectSoon files a message of this feed with the rejected messages and acks it, together with others and by File at the latest.
	RejectSoon(ctx context.Context, d *streams.Delivery, reason schemas.Reason, detail string) error
	// File files every message that waits to be filed, also those that the feed itself refused.
	File(ctx context.Context) error
	// RejectCarried files a trajectory that an earlier feed delivered and a checkpoint has carried since.
	RejectCarried(ctx context.Context, sequence uint64, t *schemas.Trajectory, reason schemas.Reason, detail string) error
	// ReadStored reads the messages that the stream holds, acked or not, above after and up to upTo, or somewhat further where upTo cuts a
	// message in parts; it may stop after a number of bytes. The archive keeps them before a purge.
	ReadStored(ctx context.Context, after, upTo uint64, bytes int) (*streams.StoredSpan, error)
	// Purge removes every message up to a sequence.
	Purge(ctx context.Context, upTo uint64) error
	// Identity names the stream; Known is the last message that the feed has seen.
	Identity() streams.Position
	Known() streams.Mark
	// Close ends the feed; messages that are not acked stay.
	Close()
}

// version is a policy version to publish: the engine holds it.
type version struct {
	number int64
	// at is when its checkpoint was saved, so that publishing it again sends the same manifest.
	at time.Time
}

// Deps are the dependencies of Run. An estimator or a loss of the program itself belongs in the configuration instead, in
// Config.Advantage.Foreign and Config.Loss.Foreign, so that the configuration is checked with it.
type Deps struct {
	Engine gpu.Engine
	// NewEngine makes an engine of a given shape, to which the trainer gives its weights and which it closes: the frozen policy that a KL
	// term is taken against, and a critic of its own. NewEngine may be nil where the configuration has neither.
	NewEngine func(gpu.Config) (gpu.Engine, error)
	Stream    Stream
	Prompts   Prompts
	// Opening gives the tokens that every rollout of a ticket begins with, so that a trajectory that begins otherwise, or marks any of them
	// as sampled, is refused. nil, and no tokens, where the agent's beginning is not known. Only the first segment is compared with it: an
	// agent may write its later contexts anew.
	Opening func(*schemas.Ticket) []int32
	// Messages is where the stream's messages are kept before they are purged; nil is the folder that Config.Archive names. A bucket has a
	// messages.Spool before it.
	Messages messages.Store
	// Demonstrations may be nil when the configuration has no cold start.
	Demonstrations learner.Demonstrations
	// Settings are the run's configuration, by key. Each step's record has a hash of its settings, and a run that goes on with other
	// settings reports the change. nil records none.
	Settings map[string]string
	// LearnerOf is the learner's configuration under the settings of earlier steps, for steps that are learnt again after the settings have
	// changed; nil where such steps cannot be learnt again.
	LearnerOf func(settings map[string]string) (learner.Config, error)
	// Tokenizer is the tokenizer.json that checkpoints carry; nil if there is none.
	Tokenizer []byte
	// Files are the files of the policy's model folder, which every checkpoint carries unchanged; nil if the policy began without a folder.
	Files *hf.Files
	Log   *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// Observer is called once a step, during the cold start and while groups are dropped, on the loop's goroutine; it may
	// be nil.
	Observer func(schemas.Event)
	// Ended is called with every trajectory that a step used, or that was refused or dropped, on the loop's goroutine, and must not wait;
	// it may be nil.
	Ended func(Ending)
	// UsedUp is called when the run ends before Config.Steps because its prompts are used up; it may be nil. See Finite.
	UsedUp func(step int64)
	// Reported is the newest step whose end Observer was called with and has kept. A trainer that starts from a later step, because it was
	// killed before it called Observer, reports that step first, with the numbers in the checkpoint. With nil no such step is reported.
	Reported func() int64
	// After is called on the loop's goroutine when a stage of a step is done, with its name: renew, batch, update, commit, the parts of
	// checkpoint.Store, save, ack, purge, publish, control, issue. Tests end the process in it; it may be nil.
	After func(stage string)
	// Rewrites is called before the newest line of the record and its checkpoint are written anew, with the chains of that line and of the
	// new line, on the loop's goroutine: checkpoint.Store.Rewrites. It may be nil.
	Rewrites func(step int64, before, chain string)
	// Lease is how long a ticket stays with a producer that has died; 0 is streams' default.
	Lease time.Duration
	// Now defaults to time.Now. Only decisions to wait no longer depend on it: that of Config.GroupTimeout and that of Config.Staleness.
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
	if d.UsedUp == nil {
		d.UsedUp = func(int64) {}
	}
	if d.Observer == nil {
		d.Observer = func(schemas.Event) {}
	}
	return d, errors.Join(errs...)
}

// maxSequence returns the number of tokens of the policy's longest possible sequence.
func (d Deps) maxSequence() int {
	longest := d.Engine.Config().MaxPositions
	if most := d.Engine.Limits().MaxTokens; most > 0 {
		longest = min(longest, most) // a sequence is never split
	}
	return longest
}

// learnerDeps returns the learner's dependencies; it writes to the folder scratch.
func (d Deps) learnerDeps(scratch string, keep bool) learner.Deps {
	return learner.Deps{
		Engine: d.Engine, NewEngine: d.NewEngine, Scratch: scratch, Tokenizer: d.Tokenizer, KeepTokens: keep, Log: d.Log, Now: d.Now,
	}
}
