package streams

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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
// there at the sweep before, by any process, which was fenceKept ago at least.
func (r *Run) sweepFences(ctx context.Context, now time.Time) error {
	return r.conn.guardCall(ctx, r.names.released, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, "KV_"+r.names.released)
		if err != nil || stream.CachedInfo().State.Bytes < releasedBytes/2 {
			return err
		}
		swept, err := r.readEntry(ctx, r.names.released, sweepKey)
		if err != nil || len(swept.value) > 0 && now.Sub(swept.stored) < fenceKept {
			return err
		}
		newest := strconv.FormatUint(stream.CachedInfo().State.LastSeq, 10)
		if _, err := r.writeEntry(ctx, r.names.released, sweepKey, []byte(newest), atRevision(swept.revision)); err != nil {
			return fmt.Errorf("note a sweep of fences: %w", err) // of another process, it may be
		}
		before, err := strconv.ParseUint(string(swept.value), 10, 64)
		if err != nil {
			return nil //nolint:nilerr // it is the first sweep
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
				left = append(left, endedFence{key: key, revision: before})
			}
		}
		r.endedFences.addLeft(left)
		return nil
	})
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
