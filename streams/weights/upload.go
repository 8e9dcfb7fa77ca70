package weights

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weir-rl/weir/streams/internal/pipeline"
	"github.com/weir-rl/weir/streams/internal/seam"
)

const (
	// chunksInFlight bounds the chunks of an object that wait for the broker's answer.
	chunksInFlight = 16
	// settleTimeout bounds the wait for chunks that are on their way when an upload is given up, cleanTimeout that for their removal.
	settleTimeout = 500 * time.Millisecond
	cleanTimeout  = 5 * time.Second
)

// upload puts a shard into the object store, as an object of that name: its chunks, then its description. The client library's own
// Put is not used: where its context ends in the middle, as at a reconnection, the chunks that it has sent stay.
//
// Invariant: a put that ends in the middle leaves no chunks, as long as the broker answers.
type upload struct {
	store objectShards
	hash  string
	blob  Blob
	// left are the ids of the objects whose chunks were sent, and whose descriptions were not.
	left []string
}

// sendObject makes an attempt.
func (u *upload) sendObject(ctx context.Context) error {
	js := u.store.run.JetStream()
	info := jetstream.ObjectInfo{Bucket: u.store.bucket, NUID: nuid.Next()}
	info.Name = u.hash
	info.Opts = &jetstream.ObjectMetaOptions{ChunkSize: uint32(min(objectChunk, max(js.Conn().MaxPayload()-objectRoom, 1)))}
	u.left = append(u.left, info.NUID)
	if err := u.sendChunks(ctx, &info); err != nil {
		return err
	}
	data, err := json.Marshal(info)
	if err != nil {
		return fmt.Errorf("encode the description of shard %s: %w", u.hash, err)
	}
	// From here on the object may be whole, also where no answer comes: a sweep finds out.
	u.keepChunks(info.NUID)
	header := nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}
	_, err = js.PublishMsg(ctx, &nats.Msg{Subject: u.store.metaSubject(u.hash), Header: header, Data: data}, jetstream.WithRetryAttempts(0))
	if seam.Code(err) != nil {
		u.left = append(u.left, info.NUID) // the broker has refused the description: the object is not whole
	}
	return err
}

// sendChunks sends the bytes, and sets size and digest in info. It returns nil when the broker has stored them all.
func (u *upload) sendChunks(ctx context.Context, info *jetstream.ObjectInfo) error {
	chunks, err := pipeline.Open(u.store.run.JetStream().Conn())
	if err != nil {
		return err
	}
	defer chunks.Close()
	subject, from, h := u.store.chunkPrefix()+info.NUID, readerOf(ctx, u.blob), sha256.New()
	for buffer := make([]byte, info.Opts.ChunkSize); err == nil; {
		n, readErr := io.ReadFull(from, buffer)
		h.Write(buffer[:n])
		if n > 0 {
			err = chunks.Send(&nats.Msg{Subject: subject, Data: buffer[:n]})
			info.Size, info.Chunks = info.Size+uint64(n), info.Chunks+1
		}
		last := errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF)
		if !last {
			err = errors.Join(err, readErr)
		}
		for err == nil && (last && chunks.Waiting() > 0 || chunks.Waiting() >= chunksInFlight) {
			err = awaitChunk(ctx, chunks)
		}
		if last {
			break
		}
	}
	if err == nil {
		if err = verifyHash(u.hash, hexSum(h)); err != nil {
			err = fmt.Errorf("%w; the shard was changed while it was sent", err)
		}
	}
	if err != nil {
		u.awaitOutstanding(ctx, chunks)
	}
	info.Digest = jetstream.GetObjectDigestValue(h)
	return err
}

// awaitChunk waits until the broker has stored the next chunk.
func awaitChunk(ctx context.Context, chunks *pipeline.Pipeline) error {
	_, data, err := chunks.Next(ctx)
	if err != nil {
		return err
	}
	return pipeline.ReadAck(data)
}

// awaitOutstanding waits for the answers to the chunks that are on their way: chunks that come after they are removed would stay.
func (u *upload) awaitOutstanding(ctx context.Context, chunks *pipeline.Pipeline) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	for chunks.Waiting() > 0 && u.store.run.JetStream().Conn().IsConnected() {
		if _, _, err := chunks.Next(ctx); err != nil && !errors.Is(err, nats.ErrNoResponders) {
			return
		}
	}
}

// keepChunks takes an object out of the objects whose chunks are to be removed.
func (u *upload) keepChunks(id string) {
	u.left = slices.DeleteFunc(u.left, func(s string) bool { return s == id })
}

// purgeLeft removes the chunks of the attempts that failed. An object whose chunks cannot be removed stays in the list.
func (u *upload) purgeLeft(ctx context.Context) error {
	for _, id := range slices.Clone(u.left) {
		stream, err := u.store.run.JetStream().Stream(ctx, u.store.streamName())
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(u.store.chunkPrefix()+id))
		}
		if err != nil {
			return err
		}
		u.keepChunks(id)
	}
	return nil
}

// cleanUp is purge at the end of the upload, also where the caller's context has ended. It does not wait for a broker that is away.
func (u *upload) cleanUp(ctx context.Context) {
	if len(u.left) == 0 || !u.store.run.JetStream().Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	_ = u.purgeLeft(ctx) // a later sweep removes what is left
}
