package remote

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// RefusedError is a service's refusal of a request, in the service's words.
type RefusedError struct {
	// Status is the answer's, 4xx.
	Status int
	// Reason is the service's text, cleaned by [Clean].
	Reason string
}

func (e *RefusedError) Error() string { return e.Reason }

// awayError is a failure that may be over soon: the call is tried again.
type awayError struct {
	err error
	// after is how long the service asks to be left alone; 0 when it does not say.
	after time.Duration
}

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// FailedCallError is the failure of a call at a service that answered others while the call was tried: the request may be the cause. It is
// the machinery's failure too, as [producers.ErrUnavailable] is, unless [OfTool] makes the call's of it.
type FailedCallError struct{ err error }

func (e *FailedCallError) Error() string { return e.err.Error() }
func (e *FailedCallError) Unwrap() error { return e.err }

// errFailedCall is the observation of such a call.
var errFailedCall = errors.New("the service failed at this call")

// OfTool returns a tool's error for an error of [Client.Post]: a [FailedCallError] becomes the call's failure, which the agent is told, so
// that a policy cannot take an episode out of training by its request.
func OfTool(err error) error {
	if _, ok := errors.AsType[*FailedCallError](err); ok {
		return errFailedCall
	}
	return err
}

// Failures that a call may be the cause of, beside statuses.
var (
	errLate     = errors.New("no whole answer")
	errUnusable = errors.New("the answer cannot be used")
	errTooLong  = errors.New("the answer has more than max_bytes")
)

// IsUnusable reports whether a service answered, and its answer has not the form that it must have.
func IsUnusable(err error) bool { return errors.Is(err, errUnusable) || errors.Is(err, errTooLong) }

// suspectsCall reports whether the request may be why an attempt failed: the service took the request, and failed at it. A service that
// asks to be left alone, or that is not there, failed for another reason.
func suspectsCall(err error) bool {
	if answered, ok := errors.AsType[*StatusError](err); ok {
		return answered.Status >= 500 && answered.Status != http.StatusServiceUnavailable
	}
	for _, failure := range []error{errLate, errUnusable, errTooLong, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET} {
		if errors.Is(err, failure) {
			return true
		}
	}
	return false
}

// Refusal is the body of an answer 4xx by which a service refuses a request.
type Refusal struct {
	// Error says why, in words that the agent is shown.
	Error *string `json:"error"`
}

// maxReason bounds a refusal's words, in bytes.
const maxReason = 4096

// StatusError is an answer with a status that is no success.
type StatusError struct {
	Status int
	// Words are the beginning of what the service wrote, as [quoteBody] quotes it; "" is nothing.
	Words string
}

func (s *StatusError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("answered %d %s", s.Status, http.StatusText(s.Status)))
	if s.Words != "" {
		text += ": " + s.Words
	}
	return text
}

// quotedBytes bounds what a message quotes of a service's answer.
const quotedBytes = 200

// quoteBody returns what a service says in the body of an answer, cleaned and cut: the text of "error", "message" or "detail" where the
// body is a JSON object that has one, also within an "error" object; else the body as it is.
func quoteBody(body []byte) string {
	text := string(body)
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil {
		if inner := fields["error"]; len(inner) > 0 {
			var within map[string]json.RawMessage
			if json.Unmarshal(inner, &within) == nil && within != nil {
				fields = within
			}
		}
		for _, key := range []string{"error", "message", "detail"} {
			var words string
			if json.Unmarshal(fields[key], &words) == nil && words != "" {
				text = words
				break
			}
		}
	}
	text = strings.TrimSpace(Clean(cutBytes(text, 4*quotedBytes)))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > quotedBytes {
		text = cutBytes(text, quotedBytes) + "..."
	}
	return text
}

// checkStatus is nil where the answer has the body that was asked for; words quote the body. All classes of status are told apart here:
//
//	2xx                    the answer
//	408, 425, 429, 5xx     away: tried again
//	401, 403, 407          a wrong token: an error
//	other 4xx              a refusal where the body is one, else an error, such as a wrong path
//	1xx, 3xx               an error
func checkStatus(res *http.Response, body []byte, whole bool, words string) error {
	code := res.StatusCode
	answered := &StatusError{code, words}
	switch {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return &awayError{answered, retryAfter(res.Header.Get("Retry-After"))}
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired:
		return fmt.Errorf("%w (look at token_file or token_env)", answered)
	case code >= 400:
		var refusal Refusal
		err := errors.New("the body is too long")
		if whole {
			err = Strict(&refusal)(body)
		}
		if err == nil && refusal.Error != nil {
			return &RefusedError{code, Clean(cutBytes(*refusal.Error, maxReason))}
		}
		return fmt.Errorf(`%w (want a body {"error": "..."}: look at url)`, answered)
	}
	return answered
}

// retryAfter reads the seconds of a Retry-After header; 0 where it is absent, a date or nonsense.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || seconds < 0 || seconds > 3600 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// cutBytes cuts a text to at most that number of bytes, between characters.
func cutBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// Strict decodes a single JSON object: a key that into does not have, a key that is there twice, and anything after the object are errors,
// for a misspelt or doubled key would be lost without a word.
func Strict(into any) func([]byte) error {
	return func(data []byte) error {
		data = bytes.TrimSpace(data)
		switch {
		case len(data) == 0:
			return errors.New("it is empty")
		case data[0] != '{':
			return fmt.Errorf("it is no JSON object: it begins with %.20q", data)
		case !utf8.Valid(data):
			return errors.New("it is not UTF-8 text")
		}
		if err := checkDuplicates(data); err != nil {
			return err
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(into); err != nil {
			return plainMessage(err)
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return errors.New("there is more after its JSON object")
		}
		return nil
	}
}

// plainMessage takes the Go out of a message of encoding/json.
func plainMessage(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: got %s, want %s", cmp.Or(wrong.Field, "the answer"), describeValue(wrong.Value), describeType(wrong.Type))
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// describeValue names a value as [json.UnmarshalTypeError] has it: a kind, or a number and its digits.
func describeValue(value string) string {
	kinds := map[string]string{
		"string": "a string", "number": "a number", "bool": "true or false", "array": "an array", "object": "an object",
	}
	return cmp.Or(kinds[value], "the "+value+", which is out of range")
}

// describeType names the JSON that a type of Go is read from.
func describeType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return describeType(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// checkDuplicates refuses an object with two equal keys; capitals count as small letters, as they do in decoding.
func checkDuplicates(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if _, err := decoder.Token(); err != nil {
		return plainMessage(err)
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return plainMessage(err)
		}
		key, _ := token.(string)
		folded := strings.ToLower(key)
		if seen[folded] {
			return fmt.Errorf("%.40q: the key is there twice", key)
		}
		seen[folded] = true
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return plainMessage(err)
		}
	}
	return nil
}
