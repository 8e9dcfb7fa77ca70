package streams

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// ackKind is an acknowledgement of a message, which a reader sends to the message's reply subject.
//
// The client library's messages have methods that send the same acknowledgements. They are not used: leases and feeds keep reply
// subjects and not messages, an acknowledgement whose answer was lost is sent again, which those methods refuse after the first time,
// and none of them waits until the broker has confirmed that a message goes back.
type ackKind string

const (
	// ackDone ends a message: it is never sent again.
	ackDone ackKind = "+ACK"
	// ackNak has the broker send a message again, to anybody, at once.
	ackNak ackKind = "-NAK"
	// ackWorking has the broker wait once more as long as a reader may take, from when it receives the acknowledgement.
	ackWorking ackKind = "+WPI"
)

// ackNakAfter is ackNak with a delay; a delay of 0 or less is none.
func ackNakAfter(delay time.Duration) ackKind {
	if delay <= 0 {
		return ackNak
	}
	return ackKind(fmt.Sprintf(`%s {"delay": %d}`, ackNak, delay.Nanoseconds()))
}

// ackTerm ends a message that cannot be used. The reason is for the broker's advisories alone.
func ackTerm(reason schemas.Reason) ackKind { return ackKind("+TERM " + string(reason)) }

// goesBack is whether the message is to be sent again.
func (w ackKind) goesBack() bool { return strings.HasPrefix(string(w), string(ackNak)) }

// sendAck sends an acknowledgement once and does not wait for its confirmation: where it is lost, the broker sends the message again.
func (r *Run) sendAck(reply string, w ackKind) error { return r.nc.Publish(reply, []byte(w)) }

// ackTimeout bounds the wait for the answer to an acknowledgement.
const ackTimeout = 2 * time.Second

// confirmAck sends an acknowledgement once and waits until the broker has confirmed it.
func (r *Run) confirmAck(ctx context.Context, reply string, w ackKind) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	_, err := r.nc.RequestWithContext(ctx, reply, []byte(w))
	return err
}
