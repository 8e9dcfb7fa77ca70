package streams

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// Headers of a rejected message.
const (
	headerReason   = "Weir-Reason"
	headerDetail   = "Weir-Detail"
	headerSubject  = "Weir-Subject"
	headerStream   = "Weir-Stream"
	headerSequence = "Weir-Sequence"
	// maxDetail bounds the detail, in bytes.
	maxDetail = 1 << 10
)

// RejectedMessage is a refused message as REJECTED keeps it.
type RejectedMessage struct {
	// Sequence in REJECTED.
	Sequence uint64
	Reason   schemas.Reason
	// Detail says in words why it was refused.
	Detail string
	// Subject, Stream and Original are the subject, the stream and the sequence that the message came from.
	Subject  string
	Stream   string
	Original uint64
	At       time.Time
	// Data is the message as it came.
	Data []byte
}

// origin is where a refused message came from.
type origin struct {
	stream, subject string
	sequence        uint64
}

// newRejection is a message as REJECTED keeps it. The log tells of it.
func (r *Run) newRejection(from origin, reason schemas.Reason, detail string, data []byte) (rejection, error) {
	if err := CheckName("reason", string(reason)); err != nil {
		return rejection{}, err
	}
	detail = cleanDetail(detail)
	h := nats.Header{}
	h.Set(headerReason, string(reason))
	h.Set(headerDetail, detail)
	h.Set(headerSubject, from.subject)
	h.Set(headerStream, from.stream)
	h.Set(headerSequence, strconv.FormatUint(from.sequence, 10))
	r.log.Warn("message rejected", "reason", string(reason), "detail", detail, "subject", from.subject, "sequence", from.sequence)
	return rejection{
		from: from, reason: reason, header: h, data: data, subject: r.names.rejectedSubject(string(reason)),
		id: fmt.Sprintf("rejected/%s/%d/%s", from.stream, from.sequence, reason),
	}, nil
}

// storeRejection copies a message to REJECTED. It is idempotent: a message is kept once for each reason.
func (r *Run) storeRejection(ctx context.Context, m rejection) error {
	return r.publishOnce(ctx, r.names.rejected, m.subject, m.id, m.header, m.data)
}

// cleanDetail makes a detail fit for a header: a single line, bounded.
func cleanDetail(detail string) string {
	detail = strings.ToValidUTF8(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, detail), "?")
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "")
	}
	return strings.TrimSpace(detail)
}

// Producer is the name of the producer in the message's subject; "" where the subject is not that of a trajectory. With keys a producer
// can choose the name, but not hide that the message came under it.
func (m *RejectedMessage) Producer() string {
	_, of, found := strings.Cut(m.Subject, ".trajectories.")
	_, producer, named := strings.Cut(of, ".")
	if !found || !named {
		return ""
	}
	return producer
}

// Rejected are the messages of REJECTED, oldest first, as far as the stream reached when the walk began. The walk ends after the
// first error.
func (r *Run) Rejected(ctx context.Context) iter.Seq2[*RejectedMessage, error] {
	return r.RejectedAfter(ctx, 0, math.MaxInt64)
}

// RejectedAfter is [Run.Rejected] of the messages after a sequence of REJECTED; of more than most it leaves out the oldest. A sequence that
// the stream has not reached is of another stream, and counts as 0.
func (r *Run) RejectedAfter(ctx context.Context, after, most uint64) iter.Seq2[*RejectedMessage, error] {
	return func(yield func(*RejectedMessage, error) bool) {
		name := r.names.rejected
		var stream jetstream.Stream
		err := r.callBroker(ctx, "read stream "+name, name, func(ctx context.Context) (err error) {
			stream, err = r.js.Stream(ctx, name)
			return err
		})
		if err != nil {
			yield(nil, err)
			return
		}
		first, last := stream.CachedInfo().State.FirstSeq, stream.CachedInfo().State.LastSeq
		if after <= last {
			first = max(first, after+1)
		}
		if last >= most {
			first = max(first, last-most+1)
		}
		for next := first; next <= last; {
			m, after, err := r.rejectedAt(ctx, stream, next)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return
			}
			if !yield(m, err) || err != nil {
				return
			}
			next = after
		}
	}
}

// rejectedAt reads the first message at or after a sequence, joined, and the sequence to go on from.
func (r *Run) rejectedAt(ctx context.Context, stream jetstream.Stream, sequence uint64) (*RejectedMessage, uint64, error) {
	var parts [][]byte
	var whole part
	for {
		raw, err := r.readMessageAt(ctx, stream, sequence, r.names.rejectedSubjects())
		if err != nil {
			return nil, 0, err
		}
		p, split := rejectedPart(raw.Header)
		m := &RejectedMessage{
			Sequence: raw.Sequence,
			// A stranger's headers may hold control characters for a terminal.
			Reason:  schemas.Reason(cleanDetail(raw.Header.Get(headerReason))),
			Detail:  cleanDetail(raw.Header.Get(headerDetail)),
			Subject: cleanDetail(raw.Header.Get(headerSubject)),
			Stream:  cleanDetail(raw.Header.Get(headerStream)),
			At:      raw.Time,
			Data:    raw.Data,
		}
		// A stranger's message without the header is shown with 0.
		m.Original, _ = strconv.ParseUint(raw.Header.Get(headerSequence), 10, 64)
		switch {
		case !split:
			return m, raw.Sequence + 1, nil
		case len(parts) == 0 && p.index != 1, len(parts) > 0 && (p.hash != whole.hash || p.index != len(parts)+1):
			// The rest of a message whose first part is too old and gone.
			return m, raw.Sequence + 1, nil
		}
		whole, parts = p, append(parts, raw.Data)
		if p.index == p.count {
			m.Sequence = p.firstSequence(raw.Sequence)
			if data, err := joinParts(p, parts); err == nil {
				m.Data = data
			}
			return m, raw.Sequence + 1, nil
		}
		sequence = raw.Sequence + 1
	}
}

// rejectedPart reads the part headers that publish writes; a stranger's headers that make no sense count as none.
func rejectedPart(h nats.Header) (part, bool) {
	p, ok, err := parsePart(h)
	return p, ok && err == nil
}

// readMessageAt reads a stored message: the first at or after sequence under subject, or, with subject "", the message at sequence. It
// fails with jetstream.ErrMsgNotFound if there is none.
func (r *Run) readMessageAt(
	ctx context.Context, stream jetstream.Stream, sequence uint64, subject string,
) (*jetstream.RawStreamMsg, error) {
	var options []jetstream.GetMsgOpt
	if subject != "" {
		options = append(options, jetstream.WithGetMsgSubject(subject))
	}
	name := stream.CachedInfo().Config.Name
	var m *jetstream.RawStreamMsg
	err := r.callBroker(ctx, fmt.Sprintf("read message %d of %s", sequence, name), name, func(ctx context.Context) (err error) {
		m, err = stream.GetMsg(ctx, sequence, options...)
		return err
	})
	return m, err
}

// Replay publishes a message that was rejected from TRAJECTORIES there again; a feed judges it again. It is idempotent by the sequence
// of the rejected message. Rejected tickets are issued again by the trainer and cannot be replayed.
func (r *Run) Replay(ctx context.Context, m *RejectedMessage) error {
	if m.Stream != r.names.trajectories {
		return fmt.Errorf("replay rejected message %d: it was in stream %q, only trajectories can be replayed", m.Sequence, m.Stream)
	}
	kind, _, err := schemas.Peek(m.Data)
	if err != nil {
		return fmt.Errorf("replay rejected message %d: %w", m.Sequence, err)
	}
	switch kind {
	case schemas.KindTrajectory, schemas.KindGroupClosed:
	default:
		return fmt.Errorf("replay rejected message %d: it is a %s, only trajectories can be replayed", m.Sequence, kind)
	}
	return r.publishOnce(ctx, r.names.trajectories, m.Subject, fmt.Sprintf("replay/%d", m.Sequence), nil, m.Data)
}
