package openai

import (
	"fmt"
	"net/http"
)

// Events writes server-sent events. Nothing is written before the first, so that a refusal still has a status.
type Events struct {
	w       http.ResponseWriter
	started bool
}

// NewEvents writes events to w.
func NewEvents(w http.ResponseWriter) *Events { return &Events{w: w} }

// Send writes an event without a name.
func (e *Events) Send(v any) error { return e.SendNamed("", v) }

// SendNamed writes an event with a name; "" is none.
func (e *Events) SendNamed(name string, v any) error {
	data, err := PlainJSON(v)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return e.write(name, data)
}

// Started says whether an event was written.
func (e *Events) Started() bool { return e.started }

func (e *Events) write(name string, data []byte) error {
	if !e.started {
		e.started = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-cache")
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	if _, err := fmt.Fprintf(e.w, "%sdata: %s\n\n", name, data); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return http.NewResponseController(e.w).Flush()
}

// End closes the stream of the chat API, telling in it what went wrong after it began; what went wrong before is returned.
func (e *Events) End(err error) error {
	if err == nil {
		return e.write("", []byte("[DONE]"))
	}
	if !e.started {
		return err
	}
	_ = e.Send(AsError(err).Body()) // the client may be what failed
	return nil
}
