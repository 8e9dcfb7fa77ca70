// Package pipeline sends messages to a stream without a wait for the broker's answer after each: a broker that is far away answers
// late.
//
//	p, err := pipeline.Open(nc)
//	defer p.Close()
//	err = p.Send(&nats.Msg{Subject: "weir.demo.events", Data: data})
//	reply, err := p.Next(ctx)
package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Pipeline is not safe for concurrent use.
type Pipeline struct {
	nc      *nats.Conn
	inbox   string
	replies *nats.Subscription
	// sent counts the messages, answered the answers.
	sent, answered int
}

// Open makes a pipeline of a connection.
func Open(nc *nats.Conn) (*Pipeline, error) {
	p := &Pipeline{nc: nc, inbox: nc.NewInbox() + "."}
	var err error
	p.replies, err = nc.SubscribeSync(p.inbox + "*")
	return p, err
}

// Close ends the pipeline. Answers that come later are dropped.
func (p *Pipeline) Close() { _ = p.replies.Unsubscribe() } // fails where the connection is closed, and the subscription with it

// Send sends a message and sets its reply subject. The message's data may be used again when Send returns.
func (p *Pipeline) Send(m *nats.Msg) error {
	m.Reply = p.inbox + strconv.Itoa(p.sent+1)
	if err := p.nc.PublishMsg(m); err != nil {
		return err
	}
	p.sent++
	return nil
}

// Waiting is the number of messages without an answer.
func (p *Pipeline) Waiting() int { return p.sent - p.answered }

// Next waits for the next answer, and returns its data and which message it answers, counted from 1. It fails with
// [nats.ErrNoResponders] where no stream took the message.
func (p *Pipeline) Next(ctx context.Context) (number int, data []byte, err error) {
	reply, err := p.replies.NextMsgWithContext(ctx)
	if err != nil {
		return 0, nil, err
	}
	p.answered++
	number, err = strconv.Atoi(strings.TrimPrefix(reply.Subject, p.inbox))
	if err != nil {
		return 0, nil, fmt.Errorf("read the subject of an answer: %w", err)
	}
	if reply.Header.Get("Status") == "503" {
		return number, nil, nats.ErrNoResponders
	}
	return number, reply.Data, nil
}

// ReadAck reads a stream's acknowledgement of a message. It fails with the stream's error, a [*jetstream.APIError].
func ReadAck(data []byte) error {
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Sequence uint64              `json:"seq"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return fmt.Errorf("read acknowledgement %.80q: %w", data, err)
	}
	if ack.Error != nil {
		return ack.Error
	}
	if ack.Sequence == 0 {
		return fmt.Errorf("read acknowledgement %.80q: no sequence", data)
	}
	return nil
}
