package streams

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// Topology bounds the data that the broker keeps for a run. Its limits may be changed by opening the run again.
type Topology struct {
	// MaxTickets bounds the outstanding tickets; Issue waits beyond it.
	MaxTickets int `koanf:"max_tickets"`
	// MaxTrajectories bounds the messages in TRAJECTORIES and MaxTrajectoryBytes their bytes, together; Publish
	// waits beyond either. A trajectory that goes in parts is a message for each part. The broker sets these bytes
	// aside when the run is opened, and refuses to open the run where it lacks the space.
	MaxTrajectories    int   `koanf:"max_trajectories"`
	MaxTrajectoryBytes int64 `koanf:"max_trajectory_bytes"`
	// Lease is how long a ticket stays with a producer that does not renew its lease.
	Lease time.Duration `koanf:"lease"`
	// MaxDeliver is how often a ticket is delivered before it is rejected as poisoned and its sample closed. A delivery that
	// ended without work, at a producer that drains or where no engine served the ticket, is not counted.
	MaxDeliver int `koanf:"max_deliver"`
	// DedupeWindow is how long a message id is remembered.
	DedupeWindow time.Duration `koanf:"dedupe_window"`
	// RejectedMaxAge and RejectedMaxBytes bound REJECTED, EventsMaxAge and EventsMaxBytes bound EVENTS: the oldest go first.
	// The broker sets these bytes aside, too.
	RejectedMaxAge   time.Duration `koanf:"rejected_max_age"`
	RejectedMaxBytes int64         `koanf:"rejected_max_bytes"`
	EventsMaxAge     time.Duration `koanf:"events_max_age"`
	EventsMaxBytes   int64         `koanf:"events_max_bytes"`
	// JournalMaxBytes bounds JOURNAL, where producers keep what their running episodes have done: about 12 bytes for each sampled token, and
	// the tools' texts. Beyond it the oldest records go, and an episode that they belong to begins again where its producer dies. The broker
	// sets these bytes aside, too. 0 keeps none.
	JournalMaxBytes int64 `koanf:"journal_max_bytes"`
	// ShardsMaxBytes bounds the bytes of weights that the broker keeps, and sets aside: room for weights_keep versions, another
	// version, and the bases of deltas. 0 leaves the bound to the broker's whole store (max_store_bytes). A version that does not
	// fit ends the trainer, with an error that names this key.
	ShardsMaxBytes int64 `koanf:"shards_max_bytes"`
	// WeightsKeep is how many policy versions keep their manifest and shards.
	WeightsKeep int `koanf:"weights_keep"`
	// Replicas of every stream: 1, or 3 on a cluster of three brokers in three failure domains.
	Replicas int `koanf:"replicas"`
}

// DefaultTopology suits a run on a single broker.
func DefaultTopology() Topology {
	return Topology{
		MaxTickets:         16384,
		MaxTrajectories:    8192,
		MaxTrajectoryBytes: 1 << 30,
		Lease:              30 * time.Second,
		MaxDeliver:         5,
		DedupeWindow:       time.Hour,
		RejectedMaxAge:     7 * 24 * time.Hour,
		RejectedMaxBytes:   256 << 20,
		EventsMaxAge:       7 * 24 * time.Hour,
		EventsMaxBytes:     64 << 20,
		JournalMaxBytes:    128 << 20,
		WeightsKeep:        4,
		Replicas:           1,
	}
}

// Validate reports every fault of the topology.
func (t Topology) Validate() error {
	return check.All(
		check.Positive("max_tickets", t.MaxTickets),
		check.Positive("max_trajectories", t.MaxTrajectories),
		check.Positive("max_trajectory_bytes", t.MaxTrajectoryBytes),
		check.Positive("max_deliver", t.MaxDeliver),
		check.Positive("rejected_max_bytes", t.RejectedMaxBytes),
		check.NotNegative("events_max_bytes", t.EventsMaxBytes), // a topology that was stored before there was a bound has 0
		check.NotNegative("journal_max_bytes", t.JournalMaxBytes),
		check.NotNegative("shards_max_bytes", t.ShardsMaxBytes),
		check.Positive("weights_keep", t.WeightsKeep),
		check.AtLeast("lease", t.Lease, 100*time.Millisecond),
		check.AtLeast("dedupe_window", t.DedupeWindow, 100*time.Millisecond),
		check.AtLeast("rejected_max_age", t.RejectedMaxAge, time.Second),
		check.AtLeast("events_max_age", t.EventsMaxAge, time.Second),
		check.That(slices.Contains([]int{1, 3, 5}, t.Replicas), "replicas", "%d: must be 1, 3 or 5", t.Replicas),
	)
}

// maxEvent bounds an event as it is stored, in bytes. The largest event, a step with its measures, has some ten thousand.
const maxEvent = 256 << 10

// topologyKey is where the topology stands in the metadata of TICKETS, so that Attach knows it.
const topologyKey = "weir_topology"

// streamConfigs are the stream configurations of a run.
func (t Topology) streamConfigs(n names) []jetstream.StreamConfig {
	note, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("encode topology: %v", err)) // numbers only: cannot fail
	}
	base := jetstream.StreamConfig{
		Storage:            jetstream.FileStorage,
		Replicas:           t.Replicas,
		MaxMsgs:            -1,
		MaxBytes:           -1,
		MaxMsgsPerSubject:  -1,
		MaxMsgSize:         -1,
		MaxConsumers:       -1,
		AllowDirect:        true,
		AllowAtomicPublish: true,
	}
	tickets := base
	tickets.Name = n.tickets
	tickets.Description = "leased prompts of run " + n.run
	tickets.Subjects = []string{n.ticketSubjects()}
	tickets.Retention = jetstream.WorkQueuePolicy
	tickets.Discard = jetstream.DiscardNew
	tickets.MaxMsgs = int64(t.MaxTickets)
	// A single message for each ticket: an outstanding ticket cannot be issued again, also after the dedupe window.
	tickets.MaxMsgsPerSubject = 1
	tickets.DiscardNewPerSubject = true
	tickets.Duplicates = t.DedupeWindow
	tickets.Metadata = map[string]string{topologyKey: string(note)}

	trajectories := base
	trajectories.Name = n.trajectories
	trajectories.Description = "trajectories of run " + n.run
	trajectories.Subjects = []string{n.trajectorySubjects()}
	// Limits and not a work queue: the stream can be read again from a position, and forgets no message id at a restart.
	trajectories.Retention = jetstream.LimitsPolicy
	trajectories.Discard = jetstream.DiscardNew
	trajectories.MaxMsgs = int64(t.MaxTrajectories)
	trajectories.MaxBytes = t.MaxTrajectoryBytes
	trajectories.Duplicates = t.DedupeWindow

	rejected := base
	rejected.Name = n.rejected
	rejected.Description = "refused messages of run " + n.run
	rejected.Subjects = []string{n.rejectedSubjects()}
	rejected.Retention = jetstream.LimitsPolicy
	rejected.Discard = jetstream.DiscardOld
	rejected.MaxAge = t.RejectedMaxAge
	rejected.MaxBytes = t.RejectedMaxBytes
	rejected.Duplicates = min(t.DedupeWindow, t.RejectedMaxAge)

	events := base
	events.Name = n.events
	events.Description = "events of run " + n.run
	events.Subjects = []string{n.eventSubject()}
	events.Retention = jetstream.LimitsPolicy
	events.Discard = jetstream.DiscardOld
	events.MaxAge = t.EventsMaxAge
	events.MaxMsgs = 1 << 20
	events.MaxBytes = cmp.Or(t.EventsMaxBytes, DefaultTopology().EventsMaxBytes)
	events.MaxMsgSize = maxEvent
	events.Duplicates = min(2*time.Minute, t.EventsMaxAge)
	events.RePublish = &jetstream.RePublish{Source: n.eventSubject(), Destination: n.storedSubject("events"), HeadersOnly: true}
	return []jetstream.StreamConfig{tickets, trajectories, rejected, events}
}

// producersConfig is the consumer that all producers share.
func (t Topology) producersConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:     durableProducers,
		Description: "producers taking tickets",
		AckPolicy:   jetstream.AckExplicitPolicy,
		AckWait:     t.Lease,
		// Unbounded at the broker: a ticket at the broker's bound would stay in the stream, delivered to nobody. The source that
		// takes a ticket a time too often rejects it instead.
		MaxDeliver:    -1,
		MaxAckPending: t.MaxTickets,
		MaxWaiting:    1 << 14,
	}
}

// Open creates what the run lacks on the broker, changes its limits to those of the topology, and returns a handle on the run. It is
// idempotent. It fails with [ErrIncompatible], naming the field, where a stream of that name exists that this build would make
// otherwise.
func (c *Conn) Open(ctx context.Context, run string, topology Topology) (*Run, error) {
	if err := topology.Validate(); err != nil {
		return nil, fmt.Errorf("configure topology: %w", err)
	}
	r, err := c.newRun(run, topology)
	if err != nil {
		return nil, err
	}
	// The last stream is opened after all else: a handle that attaches finds everything once all streams are there.
	streams := topology.streamConfigs(r.names)
	last := len(streams) - 1
	for _, want := range streams[:last] {
		if err := r.openStream(ctx, want); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(r.openRest(ctx), r.openJournal(ctx)); err != nil {
		return nil, err
	}
	if err := r.openStream(ctx, streams[last]); err != nil {
		return nil, err
	}
	r.compareClocks(ctx)
	return r, nil
}

func (r *Run) openStream(ctx context.Context, want jetstream.StreamConfig) error {
	return r.callBroker(ctx, "open stream "+want.Name, want.Name, func(ctx context.Context) error {
		err := r.conn.openStream(ctx, want)
		if seam.HasCode(err, codeNoStorage) {
			return noRoomError(want.Name, want.MaxBytes, err)
		}
		return err
	})
}

// noRoomError says what to do where the broker cannot set the bytes of a stream aside.
func noRoomError(stream string, bytes int64, err error) error {
	return fmt.Errorf("the broker has no room for stream %s, which sets %d MB aside: "+
		"lower streams.max_trajectory_bytes, streams.rejected_max_bytes, streams.events_max_bytes and streams.journal_max_bytes, "+
		"remove old runs, or give the broker more disk (broker.max_store_bytes); a broker whose disk has an eighth more room takes that in, "+
		"within seconds of a refusal: try again, or start the broker again: %w", stream, max(1, bytes>>20), err)
}

// openRest opens all that is no stream of messages: the producers' consumer, the buckets and the object store.
func (r *Run) openRest(ctx context.Context) error {
	err := r.callBroker(ctx, "open consumer of "+r.names.tickets, r.names.tickets, func(ctx context.Context) error {
		want := r.topology.producersConfig()
		if c, err := r.js.Consumer(ctx, r.names.tickets, want.Durable); err == nil && sameProducers(c.CachedInfo().Config, want) {
			return nil
		}
		_, err := r.js.CreateOrUpdateConsumer(ctx, r.names.tickets, want)
		return err
	})
	if err != nil {
		return err
	}
	for bucket, history := range map[string]uint8{r.names.weights: weightsHistory, r.names.control: 8} {
		err := r.openBucket(ctx, jetstream.KeyValueConfig{
			Bucket: bucket, History: history, Storage: jetstream.FileStorage, Replicas: r.topology.Replicas,
			RePublish: &jetstream.RePublish{Source: keySubject(bucket, ">"), Destination: r.names.storedSubject(bucket + ".>"), HeadersOnly: true},
		})
		if err != nil {
			return err
		}
	}
	err = r.openBucket(ctx, jetstream.KeyValueConfig{
		Bucket: r.names.released, History: 1, TTL: releasedAge, MaxBytes: releasedBytes, Storage: jetstream.FileStorage, Replicas: r.topology.Replicas,
	})
	if err != nil {
		return err
	}
	return r.callBroker(ctx, "open object store "+r.names.shards, r.names.shards, func(ctx context.Context) error {
		s, err := r.js.Stream(ctx, "OBJ_"+r.names.shards)
		if err == nil {
			have := s.CachedInfo().Config
			if have.Storage == jetstream.FileStorage && have.Replicas == r.topology.Replicas && max(have.MaxBytes, 0) == r.topology.ShardsMaxBytes {
				return nil
			}
		}
		_, err = r.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: r.names.shards, Storage: jetstream.FileStorage, Replicas: r.topology.Replicas, MaxBytes: r.topology.ShardsMaxBytes,
		})
		if seam.HasCode(err, codeNoStorage) {
			return fmt.Errorf("%w: lower shards_max_bytes, remove old runs, or give the broker more disk (max_store_bytes)", err)
		}
		return err
	})
}

// openBucket makes a bucket, or changes a bucket with another configuration. A bucket that is as it should be is not written again:
// the server writes the description of a stream, or of a consumer, and its checksum in turn, and a server that was
// killed between the two ignores the stream at every later start.
func (r *Run) openBucket(ctx context.Context, want jetstream.KeyValueConfig) error {
	return r.callBroker(ctx, "open bucket "+want.Bucket, want.Bucket, func(ctx context.Context) error {
		s, err := r.js.Stream(ctx, "KV_"+want.Bucket)
		if err == nil {
			have := s.CachedInfo().Config
			if have.MaxMsgsPerSubject == int64(want.History) && have.MaxAge == want.TTL && max(have.MaxBytes, 0) == want.MaxBytes &&
				have.Storage == want.Storage && have.Replicas == want.Replicas && have.AllowDirect &&
				(have.RePublish == nil) == (want.RePublish == nil) {
				return nil
			}
		}
		_, err = r.js.CreateOrUpdateKeyValue(ctx, want)
		if seam.HasCode(err, codeNoStorage) {
			return noRoomError("KV_"+want.Bucket, want.MaxBytes, err)
		}
		return err
	})
}

func sameProducers(have, want jetstream.ConsumerConfig) bool {
	return have.AckPolicy == want.AckPolicy && have.AckWait == want.AckWait && have.MaxDeliver == want.MaxDeliver &&
		have.MaxAckPending == want.MaxAckPending && have.MaxWaiting == want.MaxWaiting && have.FilterSubject == ""
}

func (c *Conn) openStream(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = c.js.CreateStream(ctx, want)
		return err
	}
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	if err := checkCompatible(have, want); err != nil {
		return err
	}
	if sameLimits(have, want) {
		return nil
	}
	_, err = c.js.UpdateStream(ctx, want)
	return err
}

// Attach returns a handle on a run that exists. It fails with [ErrNoRun] if the run does not exist, and with [ErrIncompatible] if
// its streams are not as this build needs them. Clocks that differ are a warning in the log.
func (c *Conn) Attach(ctx context.Context, run string) (*Run, error) {
	r, err := c.newRun(run, Topology{})
	if err != nil {
		return nil, err
	}
	infos := make(map[string]*jetstream.StreamInfo)
	for _, name := range []string{r.names.tickets, r.names.trajectories, r.names.rejected, r.names.events} {
		err := r.callBroker(ctx, "attach to stream "+name, name, func(ctx context.Context) error {
			s, err := c.js.Stream(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("%w: %s: the broker has no stream %s", ErrNoRun, run, name)
			}
			if err == nil {
				infos[name] = s.CachedInfo()
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	note := infos[r.names.tickets].Config.Metadata[topologyKey]
	if err := json.Unmarshal([]byte(note), &r.topology); err != nil {
		return nil, fmt.Errorf("%w: stream %s: metadata %s: have %q, want a topology", ErrIncompatible, r.names.tickets, topologyKey, note)
	}
	for _, want := range r.topology.streamConfigs(r.names) {
		if err := checkCompatible(infos[want.Name].Config, want); err != nil {
			return nil, err
		}
	}
	r.compareClocks(ctx)
	return r, nil
}

// checkCompatible names the first field in which have differs from want and which no change of limits can mend.
func checkCompatible(have, want jetstream.StreamConfig) error {
	for _, f := range []struct {
		name       string
		have, want any
	}{
		{"retention", have.Retention, want.Retention},
		{"storage", have.Storage, want.Storage},
		{"discard", have.Discard, want.Discard},
		{"discard_new_per_subject", have.DiscardNewPerSubject, want.DiscardNewPerSubject},
		{"max_msgs_per_subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject},
		{"allow_direct", have.AllowDirect, want.AllowDirect},
		{"allow_atomic", have.AllowAtomicPublish, want.AllowAtomicPublish},
		{"subjects", fmt.Sprint(have.Subjects), fmt.Sprint(want.Subjects)},
		{"subject_transform", have.SubjectTransform != nil, want.SubjectTransform != nil},
		{"sealed", have.Sealed, want.Sealed},
		{"deny_purge", have.DenyPurge, want.DenyPurge},
		{"no_ack", have.NoAck, want.NoAck},
		{"mirror", have.Mirror != nil, want.Mirror != nil},
		{"sources", len(have.Sources), len(want.Sources)},
	} {
		if f.have != f.want {
			return fmt.Errorf("%w: stream %s: %s: have %v, want %v: give the run another name, or remove the stream",
				ErrIncompatible, want.Name, f.name, f.have, f.want)
		}
	}
	return nil
}

func sameLimits(have, want jetstream.StreamConfig) bool {
	return have.MaxMsgs == want.MaxMsgs && have.MaxBytes == want.MaxBytes && have.MaxMsgSize == want.MaxMsgSize && have.MaxAge == want.MaxAge &&
		have.Duplicates == want.Duplicates && have.Replicas == want.Replicas && (have.RePublish == nil) == (want.RePublish == nil) &&
		have.Metadata[topologyKey] == want.Metadata[topologyKey]
}
