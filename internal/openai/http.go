package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// TimedBody bounds how long a request takes to arrive. http.Server's ReadTimeout would go on while the answer is
// made, and cancel it.
type TimedBody struct {
	io.ReadCloser
	conn    *http.ResponseController
	started bool
}

// bodyTimeout is how long the body of a request may take.
const bodyTimeout = 30 * time.Second

func (b *TimedBody) Read(p []byte) (int, error) {
	if !b.started {
		b.started = true
		_ = b.conn.SetReadDeadline(time.Now().Add(bodyTimeout)) // not every ResponseWriter has a deadline
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Restart has the time in which the body must arrive begin again at the next Read.
func (b *TimedBody) Restart() { b.started = false }

// NewTimedBody bounds a request's body by size, in bytes, and by the time that it takes to arrive.
func NewTimedBody(w http.ResponseWriter, r *http.Request, most int64) *TimedBody {
	return &TimedBody{ReadCloser: http.MaxBytesReader(w, r.Body, most), conn: http.NewResponseController(w)}
}

// Error is a refusal as the OpenAI API words it: the HTTP status, the kind of error, a code for programs, a sentence for people.
type Error struct {
	Status     int
	Kind, Code string
	Message    string
}

func (e *Error) Error() string { return e.Message }

// Refusal is a refusal with any status.
func Refusal(status int, kind, code, format string, args ...any) *Error {
	return &Error{status, kind, code, fmt.Sprintf(format, args...)}
}

// AsError is an error in the API's form; an error that is no [Error] is the server's own.
func AsError(err error) *Error {
	if api, ok := errors.AsType[*Error](err); ok {
		return api
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{http.StatusGatewayTimeout, "server_error", "timeout", "the request took too long"}
	}
	return &Error{http.StatusInternalServerError, "server_error", "internal_error", err.Error()}
}

// BadRequest is a refusal with status 400.
func BadRequest(code, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, "invalid_request_error", code, fmt.Sprintf(format, args...)}
}

// ErrorBody is the body of a refusal.
type ErrorBody struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail is the reason of a refusal.
type ErrorDetail struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    string `json:"code"`
}

// Body is the refusal as JSON.
func (e *Error) Body() ErrorBody { return ErrorBody{ErrorDetail{e.Message, e.Kind, e.Code}} }

// WriteError answers with a refusal.
func WriteError(w http.ResponseWriter, e *Error) {
	if e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	WriteJSON(w, e.Status, e.Body())
}

// WriteJSON answers with a value.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	data, err := PlainJSON(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "%s\n", data)
}

// PlainJSON encodes a value on a single line. Its text stays readable: "<search>" and not its escapes, which are for JSON
// within HTML.
func PlainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// jsonKind is the JSON value that a Go type is read from.
func jsonKind(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	}
	return "a number"
}

// ReadJSON reads an object and nothing after it.
func ReadJSON(r *http.Request, v any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, extra := dec.Token(); !errors.Is(extra, io.EOF) {
			return BadRequest("invalid_json", "the body holds more than one JSON value")
		}
		return nil
	}
	if api, ok := errors.AsType[*Error](err); ok {
		return api
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Error{
			http.StatusRequestEntityTooLarge, "invalid_request_error", "body_too_large",
			fmt.Sprintf("the body is larger than %d bytes", large.Limit),
		}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return BadRequest("unknown_parameter", "unrecognized request argument supplied: %s", strings.Trim(name, `"`))
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := jsonKind(wrong.Type)
		if strings.HasPrefix(wrong.Value, "number ") && want == "a number" {
			want = "a whole number below 2^63, or a number below 1.8e308 where a fraction may stand"
		}
		return BadRequest("invalid_type", "%s: got %.80s, want %s", cmp.Or(wrong.Field, "the body"), wrong.Value, want)
	}
	return BadRequest("invalid_json", "read the body as JSON: %v", err)
}
