package template

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type real struct {
	Name     string                     `json:"name"`
	Template string                     `json:"template"`
	Data     map[string]json.RawMessage `json:"data"`
	Target   string                     `json:"target"`
}

type expected struct {
	Template string  `json:"template"`
	Case     string  `json:"case"`
	Text     *string `json:"text"`
	Fault    string  `json:"fault"`
}

// known is a case that gonja renders otherwise than jinja2.
type known struct {
	Template string `json:"template"`
	Case     string `json:"case"`
	Why      string `json:"why"`
}

func load[T any](t testing.TB, name string) (v T) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &v))
	return v
}

func july() time.Time { return time.Date(2025, 7, 10, 12, 0, 0, 0, time.UTC) }

// vars are the variables of JSON.
func vars(data map[string]json.RawMessage) map[string]any {
	out := map[string]any{}
	for name, raw := range data {
		out[name] = raw
	}
	return out
}

// Each of the published templates is rendered as jinja2 renders it, byte for byte, but for those in known.json.
func TestPublishedTemplatesAreRenderedAsByJinja(t *testing.T) {
	t.Parallel()
	conversations := map[string]map[string]json.RawMessage{}
	for _, c := range load[[]struct {
		Name string                     `json:"name"`
		Data map[string]json.RawMessage `json:"data"`
	}](t, "conversations.json") {
		conversations[c.Name] = c.Data
	}
	excused := map[[2]string]string{}
	for _, k := range load[[]known](t, "known.json") {
		excused[[2]string{k.Template, k.Case}] = k.Why
	}
	templates := map[string]real{}
	for _, r := range load[[]real](t, "templates.json") {
		templates[r.Name] = r
	}
	require.Len(t, templates, 53)
	same := 0
	for _, e := range load[[]expected](t, "expected.json") {
		r := templates[e.Template]
		data := vars(r.Data)
		if e.Case != "own" {
			data = map[string]any{"tools": nil, "documents": nil}
			for name, raw := range r.Data {
				if len(name) > 6 && name[len(name)-6:] == "_token" {
					data[name] = raw
				}
			}
			maps.Copy(data, vars(conversations[e.Case]))
		}
		key := [2]string{e.Template, e.Case}
		tpl, err := ParseAt(r.Template, july)
		var text string
		if err == nil {
			text, err = tpl.RenderVars(data)
		}
		ok := e.Text == nil && err != nil || e.Text != nil && err == nil && text == *e.Text
		switch why := excused[key]; {
		case ok && why != "":
			t.Errorf("%v: known.json has it, but it is rendered as it should be", key)
		case !ok && why == "":
			want := "fault: " + e.Fault
			if e.Text != nil {
				want = *e.Text
			}
			t.Errorf("%v: error %v\n%q\nwant\n%q", key, err, text, want)
		case ok:
			same++
		}
		delete(excused, key)
	}
	require.Empty(t, excused, "known.json names what is not there")
	t.Logf("%d of %d", same, len(load[[]expected](t, "expected.json")))
}

func TestATemplateCannotReachBeyondItsData(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		`{% include '/etc/passwd' %}`, `{% import 'x' as y %}`, `{% from 'x' import y %}`, `{% extends 'x' %}`, `{% if`, `{{ 1 +`, `{{ messages[ }}`,
	} {
		_, err := Parse(source)
		require.ErrorContains(t, err, "parse the template: ", source)
	}
	for source, want := range map[string]string{
		`{{ raise_exception('roles must alternate') }}`: "the template refuses the conversation: roles must alternate",
		`{{ range(3000000)|list|length }}`:              "range: more than 1048576 numbers",
		`{{ nothing.of.this }}`:                         "",
		`{{ messages|random }}`:                         "random",
		`{{ dict(b=1, a=2) }}`:                          "the order of more than one name",
		`{{ strftime_now('%Q') }}`:                      "strftime_now: %Q is not known",
		`{{ 1 % 0 }}`:                                   "the interpreter failed: runtime error: integer divide by zero",
	} {
		tpl, err := Parse(source)
		if err == nil {
			_, err = tpl.Render(Data{Messages: json.RawMessage(`[{"role": "user", "content": "x"}]`)})
		}
		if want == "" {
			continue // either is right, so long as it returns
		}
		require.ErrorContains(t, err, want, source)
	}
	tpl, err := Parse(`{{ raise_exception('x') }}`)
	require.NoError(t, err)
	_, err = tpl.Render(Data{Messages: json.RawMessage(`[]`)})
	require.ErrorIs(t, err, ErrRaised)
	_, err = tpl.Render(Data{Messages: json.RawMessage(`[] []`)})
	require.EqualError(t, err, "render the template: messages: more follows the JSON value")
}

func TestJSONIsPythons(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`{{ x|tojson }}`:                                               `{"b": [1, 2.0, 1e-05, "é<\"\n\u0001"], "a": {}, "c": null}`,
		`{{ x|tojson(ensure_ascii=true) }}`:                            `{"b": [1, 2.0, 1e-05, "\u00e9<\"\n\u0001"], "a": {}, "c": null}`,
		`{{ x|tojson(sort_keys=true, separators=(',', ':')) }}`:        `{"a":{},"b":[1,2.0,1e-05,"é<\"\n\u0001"],"c":null}`,
		`{{ x|tojson(indent=2) }}`:                                     "{\n  \"b\": [\n    1,\n    2.0,\n    1e-05,\n    \"é<\\\"\\n\\u0001\"\n  ],\n  \"a\": {},\n  \"c\": null\n}",
		`{% for k, v in x.items() %}{{ k }},{% endfor %}{{ x.b[-4] }}`: "b,a,c,1",
		`{{ x.get('b')[0] }}{{ x.get('no', 'n') }}`:                    "1n",
		`{{ 'a</t>b'.split('</t>')[-1] }}{{ 'a'.split('</t>')[-1] }}`:  "ba",
	} {
		tpl, err := Parse(source)
		require.NoError(t, err, source)
		text, err := tpl.RenderVars(map[string]any{"x": json.RawMessage(`{"b": [1, 2.0, 0.00001, "\u00e9<\"\n\u0001"], "a": 7, "c": null, "a": {}}`)})
		require.NoError(t, err, source)
		require.Equal(t, want, text, source)
	}
}

// Many render at once, and what one sets no other sees.
func TestManyRenderAtOnce(t *testing.T) {
	t.Parallel()
	var qwen real
	for _, r := range load[[]real](t, "templates.json") {
		if r.Name == "Qwen/Qwen2.5-7B-Instruct" {
			qwen = r
		}
	}
	tpl, err := Parse(qwen.Template)
	require.NoError(t, err)
	require.Equal(t, qwen.Template, tpl.Source())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 4 {
				if text, err := tpl.RenderVars(vars(qwen.Data)); err != nil || text != qwen.Target {
					t.Errorf("%v: %q", err, text)
				}
			}
		})
	}
	all.Wait()
}

// Whatever a client sends as messages and tools, a template of the families that are trained returns.
func FuzzRender(f *testing.F) {
	var all []*Template
	for _, r := range load[[]real](f, "templates.json") {
		switch r.Name {
		case "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-0.6B", "meta-llama/Llama-3.1-8B-Instruct":
			tpl, err := Parse(r.Template)
			require.NoError(f, err)
			all = append(all, tpl)
			f.Add(string(r.Data["messages"]), string(r.Data["tools"]))
		}
	}
	f.Fuzz(func(t *testing.T, messages, tools string) {
		if len(messages) > 1<<12 || len(tools) > 1<<12 {
			return
		}
		for _, tpl := range all {
			_, _ = tpl.Render(Data{Messages: json.RawMessage(messages), Tools: json.RawMessage(tools)})
		}
	})
}

func BenchmarkRender(b *testing.B) {
	for _, r := range load[[]real](b, "templates.json") {
		switch r.Name {
		case "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-0.6B", "meta-llama/Llama-3.1-8B-Instruct":
			tpl, err := Parse(r.Template)
			require.NoError(b, err)
			b.Run(strings.ReplaceAll(r.Name, "/", "-"), func(b *testing.B) {
				for b.Loop() {
					_, err := tpl.RenderVars(vars(r.Data))
					require.NoError(b, err)
				}
			})
		}
	}
}
