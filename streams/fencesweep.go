package streams

import (
	"context"
	"fmt"
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
	// sweepKey is the entry of RELEASED that notes a sweep: the last sequence that the bucket had then.
	sweepKey = "swept"
	// sweepWithin bounds a sweep: a list of 40,000 keys takes seconds on a busy machine.
	sweepWithin = 15 * time.Second
)

// sweepFences has fences and counts be removed whose tickets are not outstanding, where the bucket is half full. It takes those that were
// there at the sweep before, by any process, which was fenceKept ago at least, and they wait for fenceKept as all others do: a ticket may
// have ended just now. How long ago a sweep was, the broker's clock says alone; now is when this process sweeps.
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
		noted, err := r.noteSweep(ctx, swept, bucket)
		if err == nil && !noted {
			before = r.endedFences.rememberSweep(bucket, now)
		}
		if err != nil || before == 0 {
			return err
		}
		kept, err := stream.Info(ctx, jetstream.WithSubjectFilter(keySubject(r.names.released, ">")))
		if err != nil {
			return fmt.Errorf("list the fences: %w", err)
		}
		outstanding, err := r.listOutstanding(ctx)
		if err != nil {
			return err
		}
		var left []endedFence
		for subject := range kept.State.Subjects {
			key := strings.TrimPrefix(subject, keySubject(r.names.released, ""))
			if ticket := strings.TrimPrefix(key, fencePrefix); isTicketKey(ticket) && !outstanding[ticket] {
				left = append(left, endedFence{
					key: key, revision: before, bucket: bucket.Created, ended: now, swept: true, returns: returns,
				})
			}
		}
		r.endedFences.add(left...)
		return nil
	})
}

// judgeSweep is whether a bucket is to be swept, by the note of the sweep before, and the newest sequence that the bucket had then: 0 is
// none. Both times are the broker's. After a broker's clock was set back the sweep is noted anew.
func judgeSweep(swept entry, bucket *jetstream.StreamInfo, kept time.Duration) (due bool, before uint64) {
	before, err := strconv.ParseUint(string(swept.value), 10, 64)
	if err != nil {
		return true, 0
	}
	ago := bucket.TimeStamp.Sub(swept.stored)
	if ago < 0 {
		return true, 0
	}
	return ago >= kept, before
}

// noteSweep notes the newest sequence that the bucket has at a sweep, over the note before. noted is false where the bucket is so full that
// the note finds no room.
func (r *Run) noteSweep(ctx context.Context, swept entry, bucket *jetstream.StreamInfo) (noted bool, err error) {
	note := &nats.Msg{
		Subject: keySubject(r.names.released, sweepKey), Header: nats.Header{}, Data: strconv.AppendUint(nil, bucket.State.LastSeq, 10),
	}
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
