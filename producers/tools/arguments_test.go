package tools

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// described is a tool with a schema that takes whatever is right.
type described struct{ schema string }

func (d described) Spec() producers.ToolSpec {
	s := producers.ToolSpec{Name: "described"}
	if d.schema != "" {
		s.Parameters = json.RawMessage(d.schema)
	}
	return s
}

func (described) Call(_ context.Context, call producers.Call) (producers.Observation, error) {
	return producers.Observation{Text: "took " + call.Arguments}, nil
}

func TestWrongArgumentsAreToldByPath(t *testing.T) {
	t.Parallel()
	tool := Checked(described{`{"type": "object", "required": ["city", "days"], "properties": {
		"city": {"type": "string", "minLength": 2}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]},
		"near": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}, "free": {"type": "object"}}}`})
	for text, want := range map[string]string{
		`{"city": "oslo", "days": 3}`: "",
		`{"city": "oslo", "days": 3, "unit": "c", "near": [{"name": "a"}], "free": {"x": 1}}`: "",
		`{"days": "3", "town": "oslo"}`: `wrong arguments: city: missing; days: "3": want integer; town: unknown: there are city, days, free, near, unit`,
		`{"city": 1, "days": 1.5, "unit": "k", "near": [{}, {"name": 2, "nome": "x"}]}`: `wrong arguments: city: 1: want string; days: 1.5: want integer; ` +
			`near[0].name: missing; near[1].name: 2: want string; near[1].nome: unknown: there are name; unit: "k": want one of "c", "f"`,
		`[1]`:                      "wrong arguments: the arguments: [1]: want object",
		`null`:                     "wrong arguments: the arguments: null: want object",
		`{"city": "oslo"`:          "the arguments are not JSON",
		`{"city": "o", "days": 3}`: "minLength",
		`{} {}`:                    "more than one JSON value",
		"":                         "the arguments are not JSON",
		`{"city":"o","days":1,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1}`: "; and 1 more",
	} {
		o, err := tool.Call(t.Context(), producers.Call{Arguments: text})
		if want == "" {
			require.NoError(t, err, text)
			require.Equal(t, "took "+text, o.Text)
			continue
		}
		require.ErrorContains(t, err, want, text)
		require.NotErrorIs(t, err, producers.ErrUnavailable)
	}
}

func TestWhatIsLeftUnchecked(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", `{"$schema": "http://json-schema.org/draft-03/schema#", "type": 3}`, `{"$ref": "#/nowhere"}`} {
		o, err := Checked(described{schema}).Call(t.Context(), producers.Call{Arguments: "anything"})
		require.NoError(t, err, schema)
		require.Equal(t, "took anything", o.Text)
	}
	open := Checked(described{`{"type": "object", "properties": {"a": {}}, "additionalProperties": true}`})
	_, err := open.Call(t.Context(), producers.Call{Arguments: `{"b": 1}`})
	require.NoError(t, err)
	closed := Checked(described{`{"type": "object", "properties": {"a": {}}, "additionalProperties": false}`})
	_, err = closed.Call(t.Context(), producers.Call{Arguments: `{"b": 1}`})
	require.ErrorContains(t, err, "b: unknown: there are a")
}
