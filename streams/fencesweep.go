package streams

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/streams/internal/seam"
)

// A producer that is killed leaves the fences of the journals that it ended in its last seconds, and counts of tickets. Once RELEASED is
// half full they are swept: in a full bucket no fence finds room, and a call goes out without a fence.

const (
	// sweepKey is the entry of RELEASED that has the note of a sweep.
	sweepKey = "swept"
	// sweepWithin bounds a sweep: a list of 40,000 keys takes seconds on a busy machine.
	sweepWithin = 15 * time.Second
)

// sweepNote is what a sweep notes for the next: the last sequence that the bucket had, 0 for none, and then which tickets were outstanding.
type sweepNote struct {
	newest      uint64
	outstanding map[uint32]bool // by hashTicket: two tickets of a hash wait for each other
}

// sweepFences has fences and counts be removed whose tickets are not outstanding, where the bucket is half full. It takes those that were
// there at the sweep before, by any process, which was fenceKept ago at least, and whose tickets were not outstanding then either: a ticket
// that has ended since keeps its fence. How long ago a sweep was, the broker's clock says alone; now is when this process sweeps.
func (r *Run) sweepFences(ctx context.Context, now time.Time) error {
	return r.conn.guardCall(ctx, r.names.released, func(ctx context.Context) error {
		returns := r.nc.Stats().Reconnects
		stream, err := r.js.Stream(ctx, "KV_"+r.names.released)
		if err != nil || stream.CachedInfo().State.Bytes < releasedBytes/2 {
			return err
		}
		bucket := stream.CachedInfo()
		swept, err := r.readReleasedKey(ctx, sweepKey)
		if err != nil || !swept.created.Equal(bucket.Created) {
			return err
		}
		due, before := judgeSweep(swept, bucket, r.endedFences.kept)
		if !due {
			return nil
		}
		outstanding, err := r.listOutstanding(ctx)
		if err != nil {
			return err
		}
		note := newSweepNote(bucket.State.LastSeq, outstanding)
		noted, err := r.noteSweep(ctx, swept, note)
		if err == nil && !noted {
			before = r.endedFences.rememberSweep(bucket, note, now)
		}
		if err != nil || before.newest == 0 {
			return err
		}
		kept, err := stream.Info(ctx, jetstream.WithSubjectFilter(keySubject(r.names.released, ">")))
		if err != nil {
			return fmt.Errorf("list the fences: %w", err)
		}
		var left []endedFence
		for subject := range kept.State.Subjects {
			key := strings.TrimPrefix(subject, keySubject(r.names.released, ""))
			ticket := strings.TrimPrefix(key, fencePrefix)
			if isTicketKey(ticket) && !outstanding[ticket] && !before.outstanding[hashTicket(ticket)] {
				left = append(left, endedFence{key: key, revision: before.newest, bucket: bucket.Created, swept: true, returns: returns})
			}
		}
		r.endedFences.addSwept(left)
		return nil
	})
}

func newSweepNote(newest uint64, outstanding map[string]bool) sweepNote {
	n := sweepNote{newest, make(map[uint32]bool, len(outstanding))}
	for ticket := range outstanding {
		n.outstanding[hashTicket(ticket)] = true
	}
	return n
}

// hashTicket is the hash of a ticket's key in the note of a sweep.
func hashTicket(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return h.Sum32()
}

// encodeNote encodes a note: the sequence as text, a space, and four bytes for each outstanding ticket.
func (n sweepNote) encodeNote() []byte {
	data := append(strconv.AppendUint(nil, n.newest, 10), ' ')
	for hash := range n.outstanding {
		data = binary.LittleEndian.AppendUint32(data, hash)
	}
	return data
}

// decodeNote is the inverse; ok is false for anything else, as the note of an earlier build, which has the sequence alone.
func decodeNote(data []byte) (n sweepNote, ok bool) {
	text, hashes, found := bytes.Cut(data, []byte{' '})
	newest, err := strconv.ParseUint(string(text), 10, 64)
	if !found || err != nil || len(hashes)%4 != 0 {
		return sweepNote{}, false
	}
	n = sweepNote{newest, make(map[uint32]bool, len(hashes)/4)}
	for hash := range slices.Chunk(hashes, 4) {
		n.outstanding[binary.LittleEndian.Uint32(hash)] = true
	}
	return n, true
}

// judgeSweep is whether a bucket is to be swept, by the note of the sweep before, and that note. Both times are the broker's. After a
// broker's clock was set back the sweep is noted anew.
func judgeSweep(swept entry, bucket *jetstream.StreamInfo, kept time.Duration) (due bool, before sweepNote) {
	before, ok := decodeNote(swept.value)
	if !ok {
		return true, sweepNote{}
	}
	ago := bucket.TimeStamp.Sub(swept.stored)
	if ago < 0 {
		return true, sweepNote{}
	}
	return ago >= kept, before
}

// noteSweep writes the note of a sweep over the note before. noted is false where the bucket is so full that the note finds no room.
func (r *Run) noteSweep(ctx context.Context, swept entry, n sweepNote) (noted bool, err error) {
	note := &nats.Msg{Subject: keySubject(r.names.released, sweepKey), Header: nats.Header{}, Data: n.encodeNote()}
	_, err = r.js.PublishMsg(ctx, note, atRevision(swept.revision), jetstream.WithRetryAttempts(0))
	if seam.HasCode(err, codeStoreFailed) {
		return false, nil
	}
	if err != nil { // of another process, it may be
		return false, fmt.Errorf("note a sweep of fences: %w", err)
	}
	return true, nil
}

// listOutstanding has the keys of the tickets that TICKETS holds, leased or not.
func (r *Run) listOutstanding(ctx context.Context) (map[string]bool, error) {
	stream, err := r.js.Stream(ctx, r.names.tickets)
	if err != nil {
		return nil, fmt.Errorf("look at the tickets: %w", err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(r.names.subjectPrefix()+"tickets.>"))
	if err != nil {
		return nil, fmt.Errorf("list the tickets: %w", err)
	}
	outstanding := map[string]bool{}
	for subject := range info.State.Subjects {
		outstanding[r.names.releasedKey(subject)] = true
	}
	return outstanding, nil
}

// isTicketKey is whether a key of RELEASED is that of a ticket: other entries stay.
func isTicketKey(key string) bool {
	group, sample, found := strings.Cut(key, ".")
	_, err := strconv.Atoi(sample)
	return found && group != "" && err == nil
}
