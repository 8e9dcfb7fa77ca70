package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrSeat is returned when a bucket's value of the run's seat is no seat: somebody else wrote it.
var ErrSeat = errors.New("the seat of the run's trainer cannot be read: when no trainer of the run lives, weir seat reset writes it anew")

// readHolder decodes a bucket's value of its seat.
func readHolder(bucket string, data []byte) (now holder, err error) {
	if err = json.Unmarshal(data, &now); err == nil && now.Owner == "" {
		err = errors.New("it names no owner")
	}
	if err != nil {
		return holder{}, fmt.Errorf("read %s of %s: %w (%w)", seatKey, bucket, ErrSeat, err)
	}
	return now, nil
}

// ResetSeat writes the seat anew in each bucket where it cannot be read, in the name of by, and returns these buckets: none where
// nothing is wrong. It needs the admin's rights. The epoch of the new seat is above every epoch that the run still shows, so that an
// earlier trainer is fenced; messages that the streams lack count as purged. A trainer then takes the seat as always.
func (r *Run) ResetSeat(ctx context.Context, by string) (reset []string, err error) {
	s := &Seat{run: r, owner: by, taken: time.Now().UTC()}
	broken := map[string]uint64{}
	for _, bucket := range []string{r.names.control, r.names.weights} {
		e, err := r.readEntry(ctx, bucket, seatKey)
		if err != nil {
			return nil, err
		}
		if e.value == nil {
			continue
		}
		now, err := readHolder(bucket, e.value)
		if err != nil {
			broken[bucket] = e.revision
		}
		s.epoch = max(s.epoch, now.Epoch)
	}
	if len(broken) == 0 {
		return nil, nil
	}
	last, purged, err := r.findTraces(ctx)
	if err != nil {
		return nil, err
	}
	s.epoch = max(s.epoch, last) + 1
	for _, bucket := range []string{r.names.control, r.names.weights} {
		revision, is := broken[bucket]
		if !is {
			continue
		}
		written, err := s.writeSeat(ctx, bucket, purged, revision)
		if err == nil && written == 0 {
			err = fmt.Errorf("%s of %s was written meanwhile: look whether a trainer runs, and try again", seatKey, bucket)
		}
		if err != nil {
			return reset, err
		}
		reset = append(reset, bucket)
	}
	return reset, nil
}

// findTraces finds the traces that earlier holders of the seat have left in TRAJECTORIES: the latest epoch of which there is a reader, and
// how far messages are gone.
func (r *Run) findTraces(ctx context.Context) (epoch uint64, purged *Position, err error) {
	err = r.callBroker(ctx, "look for earlier trainers", r.names.trajectories, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, r.names.trajectories)
		if err != nil {
			return err
		}
		info := stream.CachedInfo()
		if info.State.FirstSeq > 1 {
			purged = &Position{Stream: r.names.trajectories, Created: info.Created, Sequence: info.State.FirstSeq - 1}
		}
		list := stream.ConsumerNames(ctx)
		for name := range list.Name() {
			number, found := strings.CutPrefix(name, readerOf(0)+"-")
			if n, no := strconv.ParseUint(number, 10, 64); found && no == nil {
				epoch = max(epoch, n)
			}
		}
		if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return err
		}
		return nil
	})
	return epoch, purged, err
}
