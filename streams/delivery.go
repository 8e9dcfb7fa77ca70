package streams

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Delivery is a message of TRAJECTORIES. Exactly one of Trajectory and Closed is set.
//
// A refused message whose message id names its samples is delivered as a marker that closes the samples: their tickets are done, so
// that nothing else would come of them.
type Delivery struct {
	schemas.Delivery
	// Published is when the broker stored it.
	Published time.Time
	// Bytes on the wire, without headers.
	Bytes int
	// Refused is why the message was refused, "" where it was not.
	Refused schemas.Reason

	subject string
	id      string // the message id, "" where the message had none
}

// judgeMessage reads a whole message and returns it, or refuses it.
func (f *Feed) judgeMessage(ctx context.Context, d *Delivery, data []byte, replies ...string) (*Delivery, error) {
	d.Bytes = len(data)
	if reason, err := f.readMessage(d, data); err != nil {
		if err := f.refuseMessage(ctx, d, reason, err.Error(), data, replies...); err != nil {
			return nil, err
		}
		return f.inPlaceOf(d, reason), nil
	}
	f.book.addInFlight(d.Sequence, replies...)
	return d, nil
}

// inPlaceOf is the marker that stands for a refused message; nil where the message id does not name samples.
func (f *Feed) inPlaceOf(d *Delivery, reason schemas.Reason) *Delivery {
	group, samples, ok := samplesOf(d.id)
	if !ok {
		return nil
	}
	closed := &schemas.GroupClosed{
		Run: f.run.run, Group: group, Cancelled: samples, Why: "refused: " + string(reason), Producer: "feed", ClosedAt: d.Published,
	}
	return &Delivery{
		Delivery:  schemas.Delivery{Sequence: d.Sequence, Closed: closed},
		Published: d.Published, Refused: reason, subject: d.subject,
	}
}

// samplesOf reads the samples of a message from its message id: a trajectory's begins with the id of its ticket, a marker's with
// "closed".
func samplesOf(id string) (group string, samples []int, ok bool) {
	fields := strings.Split(id, "/")
	if fields[0] == "closed" && len(fields) >= 4 {
		for text := range strings.FieldsSeq(fields[2]) {
			sample, err := strconv.Atoi(text)
			if err != nil || sample < 0 {
				return "", nil, false
			}
			samples = append(samples, sample)
		}
		return fields[1], samples, fields[1] != "" && len(samples) > 0
	}
	at := strings.LastIndexByte(fields[0], '-')
	if at < 1 {
		return "", nil, false
	}
	sample, err := strconv.Atoi(fields[0][at+1:])
	return fields[0][:at], []int{sample}, err == nil && sample >= 0
}

// readMessage decodes a message into d and returns its fault. The memory of data becomes the trajectory's, since nobody else
// uses it; where the message is refused, data is as it came.
func (f *Feed) readMessage(d *Delivery, data []byte) (schemas.Reason, error) {
	kind, _, err := schemas.Peek(data)
	if err != nil {
		return decodeReason(err), err
	}
	switch kind {
	case schemas.KindTrajectory:
		t := new(schemas.Trajectory)
		undo, err := schemas.Adopt(data, t)
		if err != nil {
			return decodeReason(err), err
		}
		if reason, err := f.checkDelivery(d, t.Validate(), t.Run, t.Producer, t.OldestVersion()); err != nil {
			undo()
			return reason, err
		}
		d.Trajectory = t
	case schemas.KindGroupClosed:
		g := new(schemas.GroupClosed)
		if err := schemas.Unmarshal(data, g); err != nil {
			return decodeReason(err), err
		}
		if reason, err := f.checkDelivery(d, g.Validate(), g.Run, g.Producer, int64(schemas.NoVersion)); err != nil {
			return reason, err
		}
		d.Closed = g
	default:
		return schemas.ReasonForeign, fmt.Errorf("a %s does not belong here", kind)
	}
	return "", nil
}

// checkDelivery returns the reason to refuse a message with that fault, run, producer and oldest version under the subject of d.
func (f *Feed) checkDelivery(d *Delivery, fault error, run, producer string, oldest int64) (schemas.Reason, error) {
	if fault != nil {
		return schemas.ReasonMalformed, fault
	}
	if run != f.run.run {
		return schemas.ReasonForeign, fmt.Errorf("it is of run %.80q", run)
	}
	if want := f.run.names.trajectorySubject(oldest, producer); d.subject != want {
		return schemas.ReasonForeign, fmt.Errorf("it came under subject %s, what it says belongs under %.200s", d.subject, want)
	}
	return "", nil
}
