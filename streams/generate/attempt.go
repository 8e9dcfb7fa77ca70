package generate

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// attempt is a request to an engine, and the chunks of its answer.
type attempt struct {
	client *Client
	ask    *schemas.GenerateRequest
	// most bounds the tokens of the whole call, of which out has the tokens of earlier engines.
	most int
	out  *Result
	// progress is told of out as it grows; nil is not.
	progress func(*Result)

	replies *replies
	reply   string // the subject of the replies, which names the call
	direct  string // the engine that is asked, "" for any
	next    int    // the index of the next chunk
	// over: no engine works on the request any more.
	over  bool
	chunk schemas.GenerateChunk
}

// outcome is how an attempt ended.
type outcome struct {
	done   bool
	counts bool  // an engine failed; the lack of an engine does not count
	busy   bool  // the engine had no room
	waited int   // how long to wait before the next attempt, in doublings
	fault  error // why the attempt is not done
}

// noEngine is the wait before the next attempt where there is no engine, or no broker.
const noEngine = 5

// attemptCall sends the request once and gathers an engine's answer in out.
func (c *Client) attemptCall(
	ctx context.Context, ask *schemas.GenerateRequest, most int, out *Result, progress func(*Result),
) (outcome, error) {
	replies, reply, err := c.openReplies()
	if err != nil {
		return outcome{}, err
	}
	a := &attempt{
		client: c, ask: ask, most: most, out: out, progress: progress, replies: replies, reply: reply, direct: c.engineOf(ask.Cache()),
	}
	defer func() {
		c.closeReplies(reply)
		if !a.over {
			_ = c.notifyAttempt(opCancel, reply) // an engine that does not receive it samples to the end for nobody
		}
	}()
	if sent, end, err := a.sendRequest(); !sent {
		a.over = true
		return end, err
	}
	return a.gatherChunk(ctx)
}

// sendRequest publishes the request. Where it was not sent, end and err say how the attempt ended.
func (a *attempt) sendRequest() (sent bool, end outcome, err error) {
	data, err := schemas.Marshal(a.ask)
	if err != nil {
		return false, outcome{}, err
	}
	run := a.client.run
	if limit := run.NATS().MaxPayload(); int64(len(data)) > limit {
		return false, outcome{}, fmt.Errorf("%w: a generate call of %d bytes, the broker takes %d", streams.ErrTooLarge, len(data), limit)
	}
	subject := run.GenerateSubject()
	if a.direct != "" {
		subject = engineSubject(subject, a.direct)
	}
	err = run.NATS().PublishMsg(&nats.Msg{Subject: subject, Reply: a.reply, Header: nats.Header{headerCall: {a.reply}}, Data: data})
	switch {
	case err == nil:
		return true, outcome{}, nil
	case streams.IsTransient(err):
		return false, outcome{waited: noEngine, fault: err}, nil
	}
	return false, outcome{}, fmt.Errorf("send a generate call: %w", err)
}

// gatherChunk takes the chunks until the last, or until the engine is silent for too long.
func (a *attempt) gatherChunk(ctx context.Context) (outcome, error) {
	c := a.client
	silence := time.NewTimer(c.opts.Silence)
	defer silence.Stop()
	for {
		for _, m := range a.replies.takeMessages() {
			if end, ended, err := a.addChunk(m); ended || err != nil {
				return end, err
			}
			silence.Reset(c.opts.Silence)
		}
		select {
		case <-ctx.Done():
			for _, m := range a.replies.takeMessages() { // what came before
				if end, ended, err := a.addChunk(m); ended || err != nil {
					return end, err
				}
			}
			return outcome{}, context.Cause(ctx)
		case <-a.replies.ready:
			if c.isClosed() {
				return outcome{}, fmt.Errorf("generate call: %w", streams.ErrClosed)
			}
		case <-silence.C:
			if !c.run.NATS().IsConnected() {
				return outcome{waited: noEngine}, nil // the broker is away, which is no engine's fault
			}
			return outcome{counts: true, fault: fmt.Errorf("engine %q silent for %s", a.out.Engine, c.opts.Silence)}, nil
		}
	}
}

// addChunk takes a message of the answer. ended is whether it was the last.
func (a *attempt) addChunk(m *nats.Msg) (end outcome, ended bool, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		a.over = true
		if a.direct != "" {
			return outcome{}, true, nil // the engine that had the episode is gone: the others are asked at once
		}
		return outcome{waited: noEngine}, true, nil
	}
	if err := a.readChunks(m); err != nil {
		return outcome{counts: true, fault: err}, true, nil //nolint:nilerr // the outcome has it
	}
	chunk, out := &a.chunk, a.out
	out.Engine = chunk.Engine
	if extra := len(out.Tokens) + len(chunk.Tokens) - a.most; extra > 0 {
		return outcome{}, true, fmt.Errorf("%w: engine %s sent %d tokens more than asked for", ErrFailed, chunk.Engine, extra)
	}
	out.Tokens = append(out.Tokens, chunk.Tokens...)
	out.Logprobs = append(out.Logprobs, chunk.Logprobs...)
	out.Versions = append(out.Versions, chunk.Versions...)
	if !chunk.Done {
		if a.progress != nil && len(chunk.Tokens) > 0 {
			a.progress(out)
		}
		return outcome{}, false, nil
	}
	a.over = true
	if chunk.Stop != schemas.GenerateError {
		out.Stop = chunk.Stop
		return outcome{done: true}, true, nil
	}
	fault := fmt.Errorf("engine %s: %s", chunk.Engine, chunk.Error)
	if !chunk.Retry {
		return outcome{}, true, fmt.Errorf("%w: episode %s: %w", ErrFailed, a.ask.Episode, fault)
	}
	return outcome{counts: !chunk.Busy, busy: chunk.Busy, fault: fault}, true, nil
}

// readChunks decodes a chunk and checks that it is well formed, of this call, and the next.
func (a *attempt) readChunks(m *nats.Msg) error {
	chunk := &a.chunk
	if err := schemas.Unmarshal(m.Data, chunk); err != nil {
		return err
	}
	if err := chunk.Validate(); err != nil {
		return err
	}
	if chunk.Episode != a.ask.Episode && chunk.Episode != unknownEpisode {
		return fmt.Errorf("engine %s answered for episode %s", chunk.Engine, chunk.Episode)
	}
	if chunk.Index != a.next {
		return fmt.Errorf("engine %s: chunk %d came instead of %d", chunk.Engine, chunk.Index, a.next)
	}
	a.next++
	return nil
}
