package streams

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weir-rl/weir/streams/internal/pipeline"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// A message larger than the broker's payload limit goes as parts in an atomic batch: the broker stores all parts, next to one
// another, or none. So the parts behave as a single message: they fill the stream's limits, wait while the stream is full, are purged
// together, need no other permission, and leave no orphans, as bytes in an object store with a reference to them would. The
// sequence of the first part is that of the message; a header of each part says which part it is, so the other parts are found by
// counting.
const (
	headerPart = "Weir-Part" // "2/3"
	headerSize = "Weir-Size" // bytes of the whole
	headerHash = "Weir-Hash" // hex SHA-256 of the whole

	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"

	// headerRoom is left in the payload limit for headers.
	headerRoom = 8 << 10
	// maxParts is the broker's bound on a batch.
	maxParts = 1000
	// partsInFlight bounds the parts that wait for the broker's answer: a broker that is far away is not waited for after each.
	partsInFlight = 8
	// maxJoined bounds a message in parts, in bytes: a reader holds the whole in memory.
	maxJoined = 256 << 20
	// minRate, in bytes a second, is the slowest transfer that does not count as a failure.
	minRate = 4 << 20
)

// part is the place of a stored message within the message that it is a part of.
type part struct {
	index, count int // 1 <= index <= count
	size         int
	hash         string
}

// firstSequence is the sequence of the first part of the message whose part p is at sequence.
func (p part) firstSequence(sequence uint64) uint64 { return sequence - uint64(p.index-1) }

// parsePart reads the part headers; ok is false, without an error, where there are none.
func parsePart(h nats.Header) (p part, ok bool, err error) {
	text := h.Get(headerPart)
	if text == "" {
		return part{}, false, nil
	}
	index, count, found := strings.Cut(text, "/")
	p.index, err = strconv.Atoi(index)
	if err == nil && found {
		p.count, err = strconv.Atoi(count)
	}
	if err != nil || p.index < 1 || p.index > p.count || p.count > maxParts {
		return part{}, true, fmt.Errorf("header %s: %.40q: must be part/parts, at most %d", headerPart, text, maxParts)
	}
	p.size, err = strconv.Atoi(h.Get(headerSize))
	if err != nil || p.size < p.count {
		return part{}, true, fmt.Errorf("header %s: %.40q: must be the bytes of the whole", headerSize, h.Get(headerSize))
	}
	p.hash = h.Get(headerHash)
	if len(p.hash) != 2*sha256.Size {
		return part{}, true, fmt.Errorf("header %s: %.80q: must be a hex SHA-256", headerHash, p.hash)
	}
	return p, true, nil
}

// joinParts puts parts together and checks the whole against the headers of its parts.
func joinParts(p part, parts [][]byte) ([]byte, error) {
	held := 0
	for _, b := range parts {
		held += len(b)
	}
	if held != p.size { // before room is made for what a header claims
		return nil, fmt.Errorf("parts hold %d bytes of %d", held, p.size)
	}
	whole := slices.Concat(parts...)
	if hash := sha256.Sum256(whole); hex.EncodeToString(hash[:]) != p.hash {
		return nil, fmt.Errorf("joined bytes have hash %x, their header says %s", hash, p.hash)
	}
	return whole, nil
}

// messageID is the id by which the broker recognizes a message within the dedupe window: an id and a hash of the bytes. The same bytes
// sent again are stored once. A stranger without the bytes cannot store another message under the id first, after which
// the broker would drop the bytes as stored already. A fast hash is enough, as it need not withstand a stranger with the bytes.
func messageID(id string, data []byte) string {
	return id + "/" + base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, xxhash.Sum64(data)))
}

// publishOnce stores data in stream under subject exactly once, whatever the retries, and in parts where data is too large for a single
// message: data that was published under id before is not stored again within the dedupe window. It waits while the stream is full
// or the broker away, until ctx ends.
func (r *Run) publishOnce(ctx context.Context, stream, subject, id string, header nats.Header, data []byte) error {
	what := fmt.Sprintf("publish %s to %s", id, stream)
	room := int(r.nc.MaxPayload()) - headerRoom
	if room <= 0 {
		return fmt.Errorf("%s: %w: the broker takes %d bytes a message", what, ErrTooLarge, r.nc.MaxPayload())
	}
	if len(data) > maxJoined || len(data) > room*maxParts {
		return fmt.Errorf("%s: %w: %d bytes, at most %d", what, ErrTooLarge, len(data), min(maxJoined, room*maxParts))
	}
	timeout := attemptTimeout + time.Duration(len(data))*time.Second/minRate
	id = messageID(id, data)
	w := &waiter{parts: (len(data) + room - 1) / room}
	if stream == r.names.trajectories { // of the others none waits for room
		w.bytes = len(data)
	}
	return retryWithin(ctx, r.log, what, timeout, IsTransient, func(ctx context.Context) error {
		return r.conn.guardCall(ctx, subject, func(ctx context.Context) error {
			if err := w.checkRoom(ctx, r.vacancy, r.spaceLeft(stream)); err != nil {
				return err
			}
			if len(data) <= room {
				return w.noteAttempt(r.publishWhole(ctx, stream, subject, id, header, data))
			}
			return w.noteAttempt(r.publishParts(ctx, splitMessage{stream: stream, subject: subject, id: id, header: header, data: data, room: room}))
		})
	})
}

func (r *Run) publishWhole(ctx context.Context, stream, subject, id string, header nats.Header, data []byte) error {
	msg := &nats.Msg{Subject: subject, Header: copyHeader(header), Data: data}
	_, err := r.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectStream(stream), jetstream.WithRetryAttempts(0))
	return err
}

// splitMessage is a message that goes in parts.
type splitMessage struct {
	stream, subject, id string
	header              nats.Header
	data                []byte
	// room bounds the bytes of a part, count is the number of parts.
	room, count int
}

// publishParts sends a message in parts, some at once. The last part, with which the broker stores them all, goes when the broker has
// confirmed the others: a part that is refused ends the batch, and nothing of the batch is stored.
func (r *Run) publishParts(ctx context.Context, s splitMessage) error {
	s.count = (len(s.data) + s.room - 1) / s.room
	parts, err := pipeline.Open(r.nc)
	if err != nil {
		return fmt.Errorf("send parts: %w", err)
	}
	defer parts.Close()
	headers := s.partHeaders()
	for i, h := range headers {
		for parts.Waiting() > 0 && (i == s.count-1 || parts.Waiting() == partsInFlight) {
			if done, err := s.awaitPart(ctx, parts); done || err != nil {
				return err
			}
		}
		err := parts.Send(&nats.Msg{Subject: s.subject, Header: h, Data: s.data[i*s.room : min((i+1)*s.room, len(s.data))]})
		if err != nil {
			return fmt.Errorf("send part %d of %d: %w", i+1, s.count, err)
		}
	}
	_, err = s.awaitPart(ctx, parts)
	return err
}

// partHeaders are the headers of the parts, in their order.
func (s splitMessage) partHeaders() []nats.Header {
	hash := sha256.Sum256(s.data)
	batch := nuid.Next()
	headers := make([]nats.Header, s.count)
	for i := range headers {
		h := copyHeader(s.header)
		h.Set(headerPart, fmt.Sprintf("%d/%d", i+1, s.count))
		h.Set(headerSize, strconv.Itoa(len(s.data)))
		h.Set(headerHash, hex.EncodeToString(hash[:]))
		h.Set(headerBatchID, batch)
		h.Set(headerBatchSeq, strconv.Itoa(i+1))
		h.Set(jetstream.ExpectedStreamHeader, s.stream)
		headers[i] = h
	}
	headers[0].Set(jetstream.MsgIDHeader, s.id)
	headers[s.count-1].Set(headerBatchCommit, "1")
	return headers
}

// awaitPart waits for the broker's answer to a part. The broker answers in the order of the parts; done is whether the whole message
// is stored.
func (s splitMessage) awaitPart(ctx context.Context, parts *pipeline.Pipeline) (done bool, err error) {
	number, reply, err := parts.Next(ctx)
	if number == 0 {
		return false, fmt.Errorf("send %d parts: %w", s.count, err)
	}
	if err == nil {
		err = readBatchReply(reply, number == s.count)
	}
	if seam.HasCode(err, codeBatchDuplicate) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("send part %d of %d: %w", number, s.count, err)
	}
	return number == s.count, nil
}

// readBatchReply reads the broker's answer to a part: nothing, an error, or for the last the acknowledgement.
func readBatchReply(data []byte, last bool) error {
	if len(data) == 0 && !last {
		return nil
	}
	return pipeline.ReadAck(data)
}

func copyHeader(h nats.Header) nats.Header {
	c := make(nats.Header, len(h)+8)
	for k, v := range h {
		c[k] = append([]string(nil), v...)
	}
	return c
}
