package fakeserver

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
)

// piece is an event of an answer: tokens [from, to) are new.
type piece struct {
	out      []sampled // all so far
	from     int
	finish   string // of the last piece
	matched  int32
	spans    []map[string]any
	sentinel int // the token without a log-probability, -1 for none
	null     bool
	fewer    bool
	hit      int  // tokens of the context that were in the cache
	usage    bool // it is the event after the last, which has usage alone
}

// labelRuns are the runs of weights of an answer.
func labelRuns(out []sampled) []map[string]any {
	spans := []map[string]any{}
	for i, t := range out {
		if n := len(spans); n > 0 && spans[n-1]["version"] == t.label {
			spans[n-1]["end"] = i + 1
			continue
		}
		spans = append(spans, map[string]any{"version": t.label, "start": i, "end": i + 1})
	}
	return spans
}

// logprobAt is a token's as the servers write it.
func (p *piece) logprobAt(i int) any {
	switch {
	case i == p.sentinel && p.null:
		return nil
	case i == p.sentinel:
		return -9999.0
	}
	return finiteLogprob(p.out[i].logprob)
}

// finiteLogprob is a log-probability as JSON can have it.
func finiteLogprob(x float64) float64 {
	if math.IsInf(x, 0) {
		return -9999
	}
	return x
}

// runs are how many tokens at least come together in the pieces of a stream, in turn: a server writes the tokens that have come since
// it last could.
var runs = []int{1, 3, 2}

// serveCall writes the answer of a call, as a stream of events or whole, and lets faults of answers happen.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, id string, tokens []int32, p params, stream bool, form func(piece) any) {
	if s.faultDue("queue") {
		var events []any
		if !stream || s.tellsAborts() {
			events = append(events, form(piece{finish: "abort", sentinel: -1}))
		}
		s.writeEvents(w, events, stream)
		return
	}
	seq, err := s.engine.addCall(id, tokens, p)
	if err != nil {
		writeRefusal(w, http.StatusBadRequest, err.Error())
		return
	}
	defer s.engine.abortCalls(func(have *sequence) bool { return have == seq })
	sent, pieces := 0, 0
	harm := s.newHarm(p.maxTokens)
	emit := func(v any) bool { return writeEvent(w, v) }
	for {
		select {
		case <-r.Context().Done():
			return
		case <-seq.changed:
		}
		out, finish, matched := s.engine.progress(seq)
		if finish == "" && (!stream || len(out)-sent < runs[pieces%len(runs)]) {
			continue
		}
		pieces++
		next := piece{out: out, from: sent, finish: finish, matched: matched, sentinel: -1, hit: s.engine.countHits(seq)}
		harm(&next)
		if !stream {
			writeAnswer(w, form(next))
			return
		}
		if len(out) > 0 && s.faultDue("reset") {
			resetRequest(w)
			return
		}
		if len(out) > 0 && s.faultDue("error") {
			emit(map[string]any{"error": map[string]any{"message": "injected"}})
			return
		}
		if finish != "" && s.faultDue("cut") {
			return
		}
		silent := finish == "abort" && len(out) == sent && !s.tellsAborts()
		if !silent && !emit(form(next)) {
			return
		}
		sent = len(out)
		if finish != "" {
			if s.kind == VLLM {
				next.usage = true
				emit(form(next))
			}
			_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
			return
		}
	}
}

// writeEvent writes an event of a stream, nil for none, and reports whether the client still reads.
func writeEvent(w http.ResponseWriter, v any) bool {
	if v == nil {
		return true
	}
	data, err := json.Marshal(v)
	if err != nil {
		return false
	}
	w.Header().Set("Content-Type", "text/event-stream") // of no effect but the first time
	_, err = fmt.Fprintf(w, "data: %s\n\n", data)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

// newHarm spoils the pieces of an answer by the faults that are due.
func (s *Server) newHarm(most int) func(*piece) {
	sentinel, null := s.faultDue("sentinel"), false
	if !sentinel {
		sentinel = s.faultDue("null")
		null = sentinel
	}
	at := most / 2
	kinds := map[string]bool{}
	for _, kind := range []string{"positive", "token", "fewer", "spans", "finish", "foreign"} {
		kinds[kind] = s.faultDue(kind)
	}
	return func(p *piece) {
		if sentinel && len(p.out) > 0 {
			p.sentinel, p.null = min(at, len(p.out)-1), null
			at = p.sentinel
		}
		n := len(p.out)
		for i := p.from; i < n; i++ {
			if kinds["positive"] {
				p.out[i].logprob = 0.5
			}
			if kinds["token"] {
				p.out[i].token = 1 << 20
			}
			if kinds["foreign"] {
				p.out[i].label = "somebody-else"
			}
		}
		p.fewer = kinds["fewer"]
		if p.finish != "" {
			p.spans = labelRuns(p.out)
			if kinds["spans"] && len(p.spans) > 0 {
				p.spans[0]["start"] = 1
			}
			if kinds["foreign"] {
				for _, span := range p.spans {
					span["version"] = "somebody-else"
				}
			}
			if kinds["finish"] {
				p.finish = "tool_calls"
			}
		}
	}
}

func (s *Server) writeEvents(w http.ResponseWriter, events []any, stream bool) {
	if !stream {
		writeAnswer(w, events[0])
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		data, err := json.Marshal(e)
		if err == nil {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
		}
	}
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}
