package servers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// ErrMalformed is returned for an answer that is not in the server's wire format.
var ErrMalformed = errors.New("malformed answer")

// StatusError is an answer with another status than 200.
type StatusError struct {
	Path   string
	Status int
	Text   string
}

// Error names the path, the status and the server's reason.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.Path, e.Status, e.Text)
}

// Status is the status of an error; 0 for an error that is no answer.
func Status(err error) int {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Status
	}
	return 0
}

// Remote is a server's address. Calls and control have connections of their own, so that a pause never waits behind streams.
type Remote struct {
	url        string
	key, admin string
	generate   *http.Client
	control    *http.Client
}

// NewRemote is the server at a URL, with the keys for calls and for control; "" is none.
func NewRemote(url, key, admin string) *Remote {
	if admin == "" {
		admin = key
	}
	return &Remote{
		url: strings.TrimRight(url, "/"), key: key, admin: admin,
		generate: newClient(0), control: newClient(adminConns),
	}
}

const (
	// adminConns bounds the connections that control a server.
	adminConns = 4
	// idleConn is how long a connection is kept: servers by uvicorn close theirs after 5 s, and a call that goes out just then is lost.
	idleConn = 2 * time.Second
	// dialTimeout bounds the making of a connection.
	dialTimeout = 10 * time.Second
	// maxAnswer bounds an answer, and an event of a stream.
	maxAnswer = 64 << 20
	// maxError is how much of a refusal is read.
	maxError = 4 << 10
)

func newClient(conns int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, MaxConnsPerHost: conns, MaxIdleConnsPerHost: 256,
			IdleConnTimeout: idleConn, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// URL is the server's address.
func (r *Remote) URL() string { return r.url }

// Close gives idle connections back.
func (r *Remote) Close() {
	r.generate.CloseIdleConnections()
	r.control.CloseIdleConnections()
}

// Get reads a control path into out, which may be nil.
func (r *Remote) Get(ctx context.Context, path string, out any) error {
	return r.exchangeJSON(ctx, r.control, http.MethodGet, path, r.admin, nil, out)
}

// Post sends a body as JSON to a control path and reads the answer into out, which may be nil. A nil body is an empty object.
func (r *Remote) Post(ctx context.Context, path string, body, out any) error {
	if body == nil {
		body = struct{}{}
	}
	return r.exchangeJSON(ctx, r.control, http.MethodPost, path, r.admin, body, out)
}

// GetOpen is Get of a path that callers may read.
func (r *Remote) GetOpen(ctx context.Context, path string, out any) error {
	return r.exchangeJSON(ctx, r.control, http.MethodGet, path, r.key, nil, out)
}

func (r *Remote) exchangeJSON(ctx context.Context, c *http.Client, method, path, key string, body, out any) error {
	resp, err := r.sendRequest(ctx, c, method, path, key, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end, or given up
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: read the answer: %w", path, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMalformed, path, err)
	}
	return nil
}

// sendRequest makes a request, and fails where the status is not 200.
func (r *Remote) sendRequest(ctx context.Context, c *http.Client, method, path, key string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s: encode the request: %w", path, err)
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := c.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError {
		c.CloseIdleConnections() // uvicorn resets the connection of a request that raised, after its answer
	}
	return nil, &StatusError{Path: path, Status: resp.StatusCode, Text: parseRefusal(text)}
}

// parseRefusal reads the reason in a refused request's body, in the forms that servers use.
func parseRefusal(body []byte) string {
	var said struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &said) != nil {
		return strings.TrimSpace(string(body))
	}
	var nested struct {
		Message string `json:"message"`
	}
	switch {
	case json.Unmarshal(said.Error, &nested) == nil && nested.Message != "":
		return nested.Message
	case said.Message != "":
		return said.Message
	}
	return strings.TrimSpace(string(body))
}

// Stream posts a generate call, and gives each event of the answer to event until the server ends the stream. An
// answer that is no stream is a single event.
func (r *Remote) Stream(ctx context.Context, path string, body any, event func(data []byte) error) error {
	resp, err := r.sendRequest(ctx, r.generate, http.MethodPost, path, r.key, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end, or given up
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return fmt.Errorf("%s: read the answer: %w", path, err)
		}
		return event(data)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxAnswer)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // a comment, or the line between two events
		}
		if data = bytes.TrimSpace(data); string(data) == "[DONE]" {
			return nil
		}
		if err := event(data); err != nil {
			return err
		}
	}
	err = lines.Err()
	switch {
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: the stream ended without its end: %w", path, err)
}

// Failed is a fault that a server reports within a stream.
func Failed(message string) error { return fmt.Errorf("%w: %s", errTold, message) }

// errTold is wrapped by Failed.
var errTold = errors.New("the server failed the call")
