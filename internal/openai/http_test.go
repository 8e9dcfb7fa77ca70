package openai

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Newcomer's friction N16: a client reads which of its parameters has the wrong type, and no names of Go types.
func TestAWrongTypeIsNamedAsJSONHasIt(t *testing.T) {
	t.Parallel()
	var body struct {
		Messages []Message `json:"messages"`
		Seed     *int      `json:"seed"`
	}
	for text, want := range map[string]string{
		`{"messages": "hi"}`: "messages: got string, want an array",
		`{"seed": "1"}`:      "seed: got string, want a number",
		// Reader 10, finding 2: a number was got, and a number was wanted.
		`{"seed": 1e30}`: "seed: got number 1e30, want a whole number below 2^63",
		`{"seed": 0.5}`:  "seed: got number 0.5, want a whole number below 2^63",
		`[]`:             "the body: got array, want an object",
	} {
		err := ReadJSON(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text)), &body)
		require.ErrorContains(t, err, want)
	}
}
