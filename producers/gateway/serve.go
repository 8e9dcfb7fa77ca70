package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/internal/openai"
)

// readBody reads a request's body, without the parameters that the configuration ignores.
func (s *Server) readBody(r *http.Request, v any) error {
	if len(s.ignore) == 0 {
		return openai.ReadJSON(r, v)
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return openai.BadRequest("invalid_json", "read the body: %v", err)
	}
	var fields any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if decoder.Decode(&fields) == nil {
		for _, name := range s.ignore {
			removeKey(fields, strings.Split(name, "."))
		}
		if data, err = openai.PlainJSON(fields); err != nil {
			return err
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	return openai.ReadJSON(r, v)
}

// removeKey takes a parameter out of a request by the names on the way to it; a list on the way stands for each of its elements.
func removeKey(v any, path []string) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			removeKey(one, path)
		}
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
			return
		}
		removeKey(v[path[0]], path[1:])
	}
}

// retryCount returns how often a client has asked before, as its headers say.
func retryCount(r *http.Request) tries {
	if n, err := strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count")); err == nil && n >= 0 {
		return tries(n)
	}
	return untold
}

// writeWhole answers with a value and reports whether it went out.
func writeWhole(w http.ResponseWriter, v any) error {
	data, err := openai.PlainJSON(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// sampleBody is the body of an API's request for a sample: its request to a session, whether the reply is to be streamed, and how its API
// words the reply and the errors of a stream.
type sampleBody[B any] interface {
	*B
	newRequest(s *Session) (*request, error)
	wantsStream() bool
	writeAnswer(w http.ResponseWriter, r *reply) error
	writeStream(out *openai.Events, r *reply) error
	writeFailure(out *openai.Events, e *openai.Error) error
}

// serveSample handles an API's requests for samples.
func serveSample[B any, P sampleBody[B]](g *Server, s *Session, w http.ResponseWriter, r *http.Request) error {
	body := P(new(B))
	large, _ := r.Body.(*largeBody) // readBody may change it
	if err := g.readBody(r, body); err != nil {
		return err
	}
	req, err := body.newRequest(s)
	if err != nil {
		return err
	}
	if len(req.tools) > 0 {
		if err := s.speaker.Tools(); err != nil {
			return openai.BadRequest("unsupported_parameter", "tools: %v", err)
		}
		if _, err := s.beginReply(req); err != nil {
			return err
		}
	}
	req.tries = retryCount(r)
	req.body = large
	if !body.wantsStream() {
		return answerRequest(s, r, req, func(a *reply) error { return body.writeAnswer(w, a) })
	}
	out := openai.NewEvents(w)
	stop := out.KeepAlive(g.ping)
	defer stop()
	err = answerRequest(s, r, req, func(a *reply) error {
		stop()
		return body.writeStream(out, a)
	})
	stop()
	if err != nil && out.Started() {
		_ = body.writeFailure(out, openai.AsError(err)) // the client may have failed
		return nil
	}
	return err
}

// answerRequest asks the session and has the answer written.
func answerRequest(s *Session, r *http.Request, req *request, write func(*reply) error) error {
	answer, delivered, err := s.askPolicy(r.Context(), req)
	if err != nil {
		return err
	}
	err = write(answer)
	delivered(err == nil && r.Context().Err() == nil)
	return err
}

// countTokens is how many tokens a request's messages are.
func countTokens(s *Session, req *request) (int, error) {
	_, ids, err := s.speaker.Begin(req.messages, req.tools)
	if err != nil {
		return 0, cannotWrite(err)
	}
	return len(ids), nil
}

// serveCount tells how many tokens the messages of a request of Anthropic's are.
func serveCount(g *Server, s *Session, w http.ResponseWriter, r *http.Request) error {
	var b messagesBody
	if err := g.readBody(r, &b); err != nil {
		return err
	}
	req, err := b.newRequest(s)
	if err != nil {
		return err
	}
	n, err := countTokens(s, req)
	if err != nil {
		return err
	}
	return writeWhole(w, map[string]int{"input_tokens": n})
}

// serveInputTokens tells how many tokens the input of a request for a response is.
func serveInputTokens(g *Server, s *Session, w http.ResponseWriter, r *http.Request) error {
	var b responsesBody
	if err := g.readBody(r, &b); err != nil {
		return err
	}
	req, err := b.newRequest(s)
	if err != nil {
		return err
	}
	n, err := countTokens(s, req)
	if err != nil {
		return err
	}
	return writeWhole(w, map[string]any{"object": "response.input_tokens", "input_tokens": n})
}

// model is the policy under a name, as both OpenAI and Anthropic word it.
type model struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	Type        string `json:"type"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

// serveModels tells of the policy, which answers to every name.
func serveModels(_ *Server, _ *Session, w http.ResponseWriter, r *http.Request) error {
	m := model{ID: "policy", Object: "model", OwnedBy: "weir", Type: "model", DisplayName: "policy", CreatedAt: "1970-01-01T00:00:00Z"}
	if name := r.PathValue("model"); name != "" {
		m.ID, m.DisplayName = name, name
		return writeWhole(w, m)
	}
	return writeWhole(w, map[string]any{"object": "list", "data": []model{m}, "first_id": m.ID, "last_id": m.ID, "has_more": false})
}

func serveFinish(g *Server, s *Session, w http.ResponseWriter, r *http.Request) error {
	var b outcomeBody
	if err := g.readBody(r, &b); err != nil {
		return err
	}
	o, err := b.outcome(s)
	if err != nil {
		return err
	}
	if err := o.Check(g.cfg.MaxReward); err != nil {
		return openai.BadRequest("invalid_parameter", "%v", err)
	}
	if err := s.Finish(o); err != nil {
		return err
	}
	return writeWhole(w, map[string]bool{"ok": true})
}
