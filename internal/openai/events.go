package openai

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// PingEvery is how often a silent stream writes a comment: below the shortest patience of clients and proxies that
// is usual.
const PingEvery = 10 * time.Second

// Events writes server-sent events. Nothing is written before the first event or ping, so that a refusal still has a status. Its methods
// may be called from several goroutines.
type Events struct {
	w http.ResponseWriter

	mu      sync.Mutex
	started bool
	quiet   bool // nothing was written since the last ping was due
}

// NewEvents writes events to w.
func NewEvents(w http.ResponseWriter) *Events { return &Events{w: w, quiet: true} }

// Send writes an event without a name.
func (e *Events) Send(v any) error { return e.SendNamed("", v) }

// SendNamed writes an event with a name; "" is none.
func (e *Events) SendNamed(name string, v any) error {
	data, err := PlainJSON(v)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return e.writeEvent(name, data)
}

// Started reports whether an event or a ping was written: an error then is an event, and has no status.
func (e *Events) Started() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started
}

// KeepAlive writes a comment, which every reader of events leaves out, whenever the stream was silent for so long. stop ends that, and
// must be called before the handler returns.
func (e *Events) KeepAlive(every time.Duration) (stop func()) {
	done := make(chan struct{})
	var pinging sync.WaitGroup
	pinging.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				e.writePing()
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		pinging.Wait()
	})
}

// writePing writes a comment where nothing else was written since the last time. A client that is gone is found by the next event.
func (e *Events) writePing() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.quiet {
		_ = e.flushBlock(": ping\n\n")
	}
	e.quiet = true
}

func (e *Events) writeEvent(name string, data []byte) error {
	if name != "" {
		name = "event: " + name + "\n"
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.quiet = false
	return e.flushBlock(name + "data: " + string(data) + "\n\n")
}

// flushBlock sends a block of the stream. The lock is held.
func (e *Events) flushBlock(block string) error {
	if !e.started {
		e.started = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-cache")
	}
	if _, err := fmt.Fprint(e.w, block); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return http.NewResponseController(e.w).Flush()
}

// End closes the stream of the chat API, with an error that came after its first event in it; an earlier error is returned.
func (e *Events) End(err error) error {
	if err == nil {
		return e.writeEvent("", []byte("[DONE]"))
	}
	if !e.Started() {
		return err
	}
	_ = e.Send(AsError(err).Body()) // the client may be gone
	return nil
}
