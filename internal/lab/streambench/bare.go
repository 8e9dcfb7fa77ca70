package streambench

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// bareWay is the client library by itself, on a stream and a consumer with the settings of Weir's.
type bareWay struct {
	subject   string
	producers []jetstream.JetStream
	encoders  []schemas.Encoder
	outgoing  []schemas.Trajectory
	data      []byte // sent as it is; nil encodes and decodes
	stream    jetstream.Stream
	messages  jetstream.MessagesContext
	batch     []jetstream.Msg
	kept      []*schemas.Trajectory
}

// bareTimeout bounds a call that Weir would repeat: a disk that is busy is not to end the measurement.
const bareTimeout = time.Minute

// fetched is the prefetch of a feed by default.
const fetched = 32

func openBare(ctx context.Context, config Config, connect func() (*streams.Conn, error), run *streams.Run, template *schemas.Trajectory, coded bool) (way, func(), error) {
	name := "BARE"
	w := &bareWay{encoders: make([]schemas.Encoder, config.Producers)}
	if coded {
		name = "CODED"
	} else {
		var err error
		if w.data, err = schemas.Marshal(template); err != nil {
			return nil, nil, err
		}
	}
	w.subject = "weir." + run.Name() + "." + name
	client := func() (jetstream.JetStream, error) {
		conn, err := connect()
		if err != nil {
			return nil, err
		}
		return jetstream.New(conn.NATS(), jetstream.WithDefaultTimeout(bareTimeout))
	}
	for range config.Producers {
		js, err := client()
		if err != nil {
			return nil, nil, err
		}
		w.producers, w.outgoing = append(w.producers, js), append(w.outgoing, *template)
	}
	js, err := client()
	if err != nil {
		return nil, nil, err
	}
	stream, consumer, err := bareSettings(ctx, js, run.Name())
	if err != nil {
		return nil, nil, err
	}
	stream.Name, stream.Subjects = streamPrefix(run.Name())+name, []string{w.subject}
	if w.stream, err = js.CreateStream(ctx, stream); err != nil {
		return nil, nil, err
	}
	c, err := w.stream.CreateConsumer(ctx, consumer)
	if err != nil {
		return nil, nil, err
	}
	w.messages, err = c.Messages(jetstream.PullMaxMessages(fetched), jetstream.PullExpiry(30*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return nil, nil, err
	}
	return w, w.messages.Stop, nil
}

// bareSettings are the settings of the run's trajectories and of their reader, as the broker has them.
func bareSettings(ctx context.Context, js jetstream.JetStream, run string) (s jetstream.StreamConfig, c jetstream.ConsumerConfig, err error) {
	stream, err := js.Stream(ctx, streamPrefix(run)+"TRAJECTORIES")
	if err != nil {
		return s, c, err
	}
	consumer, err := stream.Consumer(ctx, reader)
	if err != nil {
		return s, c, err
	}
	return stream.CachedInfo().Config, consumer.CachedInfo().Config, nil
}

func (w *bareWay) publishTrajectory(ctx context.Context, producer int, id string) error {
	data := w.data
	if data == nil {
		t := &w.outgoing[producer]
		t.ID = id
		var err error
		if data, err = w.encoders[producer].Encode(t); err != nil {
			return err
		}
	}
	_, err := w.producers[producer].Publish(ctx, w.subject, data, jetstream.WithMsgID(id))
	return err
}

func (w *bareWay) nextTrajectory(ctx context.Context) error {
	m, err := w.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return err
	}
	w.batch = append(w.batch, m)
	if w.data == nil {
		t := new(schemas.Trajectory)
		w.kept = append(w.kept, t)
		return schemas.Unmarshal(m.Data(), t)
	}
	return nil
}

func (w *bareWay) settleBatch(ctx context.Context) error {
	last := w.batch[len(w.batch)-1]
	for _, m := range w.batch[:len(w.batch)-1] {
		if err := m.Ack(); err != nil {
			return err
		}
	}
	if err := last.DoubleAck(ctx); err != nil {
		return fmt.Errorf("ack the last: %w", err)
	}
	meta, err := last.Metadata()
	if err != nil {
		return err
	}
	clear(w.batch)
	clear(w.kept)
	w.batch, w.kept = w.batch[:0], w.kept[:0]
	return w.stream.Purge(ctx, jetstream.WithPurgeSequence(meta.Sequence.Stream+1))
}
