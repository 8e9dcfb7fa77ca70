package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// feedPrefetch bounds the trajectories that were asked for and that Next has not returned.
	feedPrefetch      = 32
	feedRequestExpiry = 10 * time.Second
	feedHeartbeat     = time.Second
	// feedRoom is the room for messages that have come. A request is made when less than half of feedPrefetch is asked for, so that at most
	// half as many requests are open at once; each brings a heartbeat a second until it expires, and a message that it has expired. While a
	// step goes on and Next is not called, all of them wait with the trajectories.
	feedRoom = feedPrefetch + feedPrefetch/2*int(feedRequestExpiry/feedHeartbeat+1)
)

// feedPull asks the feed's consumer for messages, and keeps the messages that have come. The client library's own iterator has room for as
// many messages as it asks for, and none for heartbeats: it drops trajectories where the reader is away for some seconds, and the broker
// sends a dropped trajectory again after AckWait alone.
//
// Invariant: what the open requests of a feed can bring fits the room for messages.
type feedPull struct {
	run     *Run
	subject string // of the requests
	inbox   string
	replies *nats.Subscription
	came    chan *nats.Msg
	// awaited counts the messages that were asked for and have not been returned.
	awaited int
}

// openPull subscribes to the answers of a consumer of a stream.
func (r *Run) openPull(stream, durable string) (*feedPull, error) {
	p := &feedPull{
		run: r, subject: r.conn.api + ".CONSUMER.MSG.NEXT." + stream + "." + durable,
		inbox: r.nc.NewInbox(), came: make(chan *nats.Msg, feedRoom),
	}
	var err error
	p.replies, err = r.nc.ChanSubscribe(p.inbox, p.came)
	return p, err
}

// nextMessage is the next message. It asks for more where less than half of feedPrefetch is on its way. It fails when ctx ends, the
// connection is closed, or the broker answers something else: the caller subscribes again then.
func (p *feedPull) nextMessage(ctx context.Context) (*nats.Msg, error) {
	silence := time.NewTimer(2 * feedHeartbeat)
	defer silence.Stop()
	for {
		if err := p.requestMessages(); err != nil {
			return nil, err
		}
		select {
		case m := <-p.came:
			silence.Reset(2 * feedHeartbeat)
			if m.Reply != "" { // to be acknowledged
				p.awaited--
				return m, nil
			}
			if err := p.readStatus(m); err != nil {
				return nil, err
			}
		case <-silence.C:
			return nil, jetstream.ErrNoHeartbeat
		case <-p.run.conn.closed:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// requestMessages makes a request where too few messages are awaited.
func (p *feedPull) requestMessages() error {
	if p.awaited >= feedPrefetch/2 {
		return nil
	}
	n := feedPrefetch - p.awaited
	body, err := json.Marshal(pullRequest{Expires: feedRequestExpiry, Batch: n, Heartbeat: feedHeartbeat})
	if err != nil {
		return err
	}
	p.awaited = feedPrefetch
	return p.run.nc.PublishRequest(p.subject, p.inbox, body)
}

// readStatus takes an answer that is no message: a heartbeat, or the end of a request.
func (p *feedPull) readStatus(m *nats.Msg) error {
	switch status := m.Header.Get("Status"); status {
	case "100": // a heartbeat
		return nil
	case "408": // a request has expired
		missing, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		if err != nil {
			return fmt.Errorf("read the end of a request: %w", err)
		}
		p.awaited = max(p.awaited-missing, 0)
		return nil
	case "503":
		return nats.ErrNoResponders
	default:
		return fmt.Errorf("request for trajectories: status %q: %s", status, m.Header.Get("Description"))
	}
}

// stopPulling ends the subscription; messages that have come and were not returned are dropped.
func (p *feedPull) stopPulling() {
	_ = p.replies.Unsubscribe() // fails only when the connection is gone, and the subscription with it
}
