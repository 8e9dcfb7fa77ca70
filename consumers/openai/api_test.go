package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	api "github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/schemas"
)

// numbers is a tokenizer whose words are their ids.
type numbers struct{}

func (numbers) Encode(text string) (ids []int32) {
	for word := range strings.FieldsSeq(text) {
		id, err := strconv.Atoi(word)
		if err != nil {
			id = 0
		}
		ids = append(ids, int32(id))
	}
	return ids
}

func (numbers) Decode(ids []int32) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(int(id))
	}
	return strings.Join(words, " ")
}

// newHandler is a server over the oracle at version 3, or over one without weights.
func newHandler(t *testing.T, cfg Config, ready bool) http.Handler {
	t.Helper()
	g := oracle{version: 3}
	if !ready {
		g.version = -1
	}
	return New(cfg, g, numbers{}, nil, nil).Handler()
}

func post(t *testing.T, h http.Handler, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	return w
}

func decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(data, &v), "%s", data)
	return v
}

// expect is what the oracle samples for a context.
func expect(t *testing.T, tokens []int32, maxTokens int, temperature float32, seed uint64, stop ...int32) *schemas.GenerateChunk {
	t.Helper()
	return oracle{version: 3}.replay(&schemas.GenerateRequest{
		Tokens: tokens, MaxTokens: maxTokens, Temperature: temperature, Seed: seed, StopTokens: stop,
	})
}

func defaultAPI() Config {
	c := DefaultConfig()
	c.Listen = "127.0.0.1:0"
	return c
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	h := newHandler(t, defaultAPI(), true)
	want := expect(t, []int32{1, 2, 3}, 8, 0.5, 9)
	for _, prompt := range []string{`"1 2 3"`, `[1, 2, 3]`, `["1 2 3"]`, `[[1, 2, 3]]`} {
		w := post(t, h, "/v1/completions", `{"model": "weir", "prompt": `+prompt+
			`, "max_tokens": 8, "temperature": 0.5, "seed": 9, "logprobs": 1, "return_token_ids": true}`)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		got := decode[completionAnswer](t, w.Body.Bytes())
		require.Equal(t, "text_completion", got.Object)
		require.Regexp(t, "^cmpl-[0-9a-f]{24}$", got.ID)
		require.Equal(t, &api.Usage{PromptTokens: 3, CompletionTokens: 8, TotalTokens: 11}, got.Usage)
		require.Len(t, got.Choices, 1)
		c := got.Choices[0]
		require.Equal(t, numbers{}.Decode(want.Tokens), c.Text)
		require.Equal(t, "length", *c.FinishReason)
		require.Equal(t, []int32{1, 2, 3}, c.PromptTokenIDs)
		require.Equal(t, []int32(want.Tokens), c.TokenIDs)
		require.Equal(t, []int32{3, 3, 3, 3, 3, 3, 3, 3}, c.PolicyVersions)
		require.Equal(t, []float32(want.Logprobs), c.Logprobs.TokenLogprobs)
		for i, at := range c.Logprobs.TextOffset {
			require.True(t, strings.HasPrefix(c.Text[at:], c.Logprobs.Tokens[i]))
		}
	}
}

func TestStopStringsAreLeftOutOfTheText(t *testing.T) {
	t.Parallel()
	h := newHandler(t, defaultAPI(), true)
	free := expect(t, []int32{1}, 8, 1, 9)
	at := free.Tokens[4]
	want := expect(t, []int32{1}, 8, 1, 9, at)
	n := len(want.Tokens)
	stop := strconv.Itoa(int(at))
	w := post(t, h, "/v1/completions", `{"prompt": "1", "max_tokens": 8, "seed": 9, "stop": ["`+stop+`"], "return_token_ids": true}`)
	c := decode[completionAnswer](t, w.Body.Bytes()).Choices[0]
	require.Equal(t, "stop", *c.FinishReason)
	require.Equal(t, []int32(want.Tokens), c.TokenIDs)
	require.Equal(t, numbers{}.Decode(want.Tokens[:n-1]), c.Text)

	w = post(t, h, "/v1/completions", `{"prompt": "1", "max_tokens": 8, "seed": 9, "stop_token_ids": [`+stop+`]}`)
	c = decode[completionAnswer](t, w.Body.Bytes()).Choices[0]
	require.Equal(t, "stop", *c.FinishReason)
	require.Equal(t, numbers{}.Decode(want.Tokens), c.Text, "a stop token id stays, as the agent's tags must")
}

func TestChat(t *testing.T) {
	t.Parallel()
	h := newHandler(t, defaultAPI(), true)
	want := expect(t, []int32{4, 5, 6}, 5, 1, 2)
	w := post(t, h, "/v1/chat/completions", `{"model": "weir", "seed": 2, "max_completion_tokens": 5, "logprobs": true,
		"messages": [{"role": "system", "content": "4"}, {"role": "user", "content": [{"type": "text", "text": "5 6"}]}]}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	got := decode[chatAnswer](t, w.Body.Bytes())
	require.Equal(t, "chat.completion", got.Object)
	c := got.Choices[0]
	require.Equal(t, &chatMessage{Role: "assistant", Content: numbers{}.Decode(want.Tokens)}, c.Message)
	require.Len(t, c.Logprobs.Content, 5)
	require.Equal(t, want.Logprobs[1], c.Logprobs.Content[1].Logprob)
	require.Equal(t, []int{int(c.Logprobs.Content[0].Token[0])}, c.Logprobs.Content[0].Bytes[:1])
}

// stream reads server-sent events up to [DONE].
func stream(t *testing.T, body io.Reader) (events []string, done bool) {
	t.Helper()
	for s := bufio.NewScanner(body); s.Scan(); {
		switch data, ok := strings.CutPrefix(s.Text(), "data: "); {
		case data == "[DONE]":
			return events, true
		case ok:
			events = append(events, data)
		default:
			require.Empty(t, s.Text())
		}
	}
	return events, false
}

func TestStreams(t *testing.T) {
	t.Parallel()
	h := newHandler(t, defaultAPI(), true)
	server := httptest.NewServer(h)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(path, body string) []string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
		events, done := stream(t, res.Body)
		require.True(t, done)
		return events
	}

	want := expect(t, []int32{1, 2, 3}, 8, 1, 9)
	var text string
	var ids []int32
	var usage *api.Usage
	events := send("/v1/completions", `{"prompt": [1, 2, 3], "max_tokens": 8, "seed": 9, "stream": true,
		"return_token_ids": true, "logprobs": 0, "stream_options": {"include_usage": true}}`)
	for i, e := range events {
		got := decode[completionAnswer](t, []byte(e))
		if i == len(events)-1 {
			require.Empty(t, got.Choices)
			usage = got.Usage
			break
		}
		text += got.Choices[0].Text
		ids = append(ids, got.Choices[0].TokenIDs...)
		require.Equal(t, i == len(events)-2, got.Choices[0].FinishReason != nil)
	}
	require.Equal(t, numbers{}.Decode(want.Tokens), text)
	require.Equal(t, []int32(want.Tokens), ids)
	require.Equal(t, 11, usage.TotalTokens)

	text = ""
	for i, e := range send("/v1/chat/completions", `{"messages": [{"role": "user", "content": "1 2 3"}], "max_tokens": 8, "seed": 9, "stream": true}`) {
		got := decode[chatAnswer](t, []byte(e))
		require.Equal(t, "chat.completion.chunk", got.Object)
		require.Equal(t, i == 0, got.Choices[0].Delta.Role == "assistant")
		text += got.Choices[0].Delta.Content
	}
	require.Equal(t, numbers{}.Decode(want.Tokens), text)
}

func TestAPIRefusals(t *testing.T) {
	t.Parallel()
	cfg := defaultAPI()
	cfg.MaxBodyBytes = 200
	h := newHandler(t, cfg, true)
	const completions, chat = "/v1/completions", "/v1/chat/completions"
	for _, test := range []struct {
		path, body string
		status     int
		code, why  string
	}{
		{completions, `{`, 400, "invalid_json", "read the body as JSON"},
		{completions, `{"prompt": "1"} {}`, 400, "invalid_json", "more than one"},
		{completions, `{}`, 400, "missing_parameter", "prompt: is missing"},
		{completions, `{"prompt": {}}`, 400, "invalid_parameter", "prompt: want text or a list of token ids"},
		{completions, `{"prompt": []}`, 400, "invalid_parameter", "no tokens"},
		{completions, `{"prompt": ["1", {}]}`, 400, "invalid_parameter", "prompt: want text or a list of token ids"},
		{completions, `{"prompt": [["1", "2"]]}`, 400, "invalid_parameter", "a list of lists of prompts"},
		{completions, `{"prompt": [99]}`, 400, "invalid_parameter", "token 0 is 99"},
		{completions, `{"prompt": "1", "temperature": -2}`, 400, "invalid_parameter", "temperature is -2"},
		{completions, `{"prompt": "1", "max_tokens": 0}`, 400, "invalid_parameter", "max_tokens is 0"},
		{completions, `{"prompt": "1", "top_p": 0.9}`, 400, "unsupported_parameter", "top_p is not supported: tokens are drawn one at a time from the whole softmax"},
		{completions, `{"prompt": "1", "n": 0}`, 400, "invalid_parameter", "n is 0: must be positive"},
		{completions, `{"prompt": ["1", "2"], "n": 40}`, 400, "invalid_parameter", "80 answers are asked for: at most 64"},
		{completions, `{"prompt": "1", "n": 2, "best_of": 3}`, 400, "unsupported_parameter", "best_of is 3"},
		{completions, `{"prompt": "1", "n": 2, "episode": "e"}`, 400, "invalid_parameter", "episode names the cache of one answer"},
		{completions, `{"prompt": "1", "echo": true}`, 400, "unsupported_parameter", "echo is not supported: the prompt is not sent back"},
		{completions, `{"prompt": "1", "user": "me", "foo": 1}`, 400, "unknown_parameter", "unrecognized request argument supplied: foo"},
		{completions, `{"prompt": "1", "logprobs": 5}`, 400, "unsupported_parameter", "logprobs is 5"},
		{completions, `{"prompt": "1", "stop": ""}`, 400, "invalid_parameter", "stop: \"\" is in every text"},
		{completions, `{"prompt": "1", "stream": true, "max_tokens": 0}`, 400, "invalid_parameter", "max_tokens is 0"},
		{completions, `{"model": "gpt", "prompt": "1"}`, 404, "model_not_found", `no model "gpt" here`},
		{completions, `{"prompt": "` + strings.Repeat("1 ", 200) + `"}`, 413, "body_too_large", "larger than 200 bytes"},
		{chat, `{"messages": []}`, 400, "missing_parameter", "messages: is empty"},
		{chat, `{"messages": [{"content": [{"type": "image_url"}]}]}`, 400, "unsupported_parameter", "only text is taken"},
		{chat, `{"messages": [{"content": "1"}], "top_logprobs": 2}`, 400, "unsupported_parameter", "top_logprobs is 2"},
		{chat, `{"messages": [{"content": "1"}], "tools": [{}]}`, 400, "unsupported_parameter", "tools is not supported: the policy calls tools by tags in its text"},
		{chat, `{"messages": [{"role": "user", "name": "me", "content": "1"}], "max_tokens": 0}`, 400, "invalid_parameter", "max_tokens is 0"},
		{"/v1/embeddings", `{}`, 404, "not_found", "no POST /v1/embeddings here"},
	} {
		w := post(t, h, test.path, test.body)
		require.Equal(t, test.status, w.Code, "%s: %s", test.body, w.Body)
		got := decode[api.ErrorBody](t, w.Body.Bytes()).Error
		require.Equal(t, test.code, got.Code, test.body)
		require.Contains(t, got.Message, test.why)
		require.Equal(t, "invalid_request_error", got.Type)
	}
}

func TestModelsHealthAndKey(t *testing.T) {
	t.Parallel()
	get := func(h http.Handler, path, key string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		h.ServeHTTP(w, req)
		return w
	}
	empty := newHandler(t, defaultAPI(), false)
	w := get(empty, "/health", "")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "not_ready", decode[api.ErrorBody](t, w.Body.Bytes()).Error.Code)
	w = post(t, empty, "/v1/completions", `{"prompt": "1"}`)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))

	cfg := defaultAPI()
	cfg.APIKey = "secret"
	h := newHandler(t, cfg, true)
	require.Equal(t, http.StatusOK, get(h, "/health", "").Code)
	require.Equal(t, http.StatusUnauthorized, get(h, "/v1/models", "").Code)
	require.Equal(t, http.StatusUnauthorized, get(h, "/v1/models", "secre").Code)
	w = get(h, "/v1/models", "secret")
	require.Equal(t, http.StatusOK, w.Code)
	created := regexp.MustCompile(`"created":[1-9]\d{9},`)
	require.Regexp(t, created, w.Body.String(), "the second at which the API was opened")
	require.JSONEq(t, `{"object":"list","data":[{"id":"weir","object":"model","created":0,"owned_by":"weir","policy_version":3}]}`,
		created.ReplaceAllString(w.Body.String(), `"created":0,`))
	require.Equal(t, http.StatusOK, get(h, "/v1/models/weir", "secret").Code)
	require.Equal(t, http.StatusNotFound, get(h, "/v1/models/other", "secret").Code)
}

// scripted gives chunks that a test chose.
type scripted []*schemas.GenerateChunk

func (s scripted) Version() int64 { return 0 }

func (s scripted) Generate(_ context.Context, _ *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	for _, c := range s {
		if err := emit(c); err != nil {
			return err
		}
	}
	return nil
}

// runes is a tokenizer whose tokens are bytes.
type runes struct{}

func (runes) Encode(text string) (ids []int32) {
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids
}

func (runes) Decode(ids []int32) string {
	var b bytes.Buffer
	for _, id := range ids {
		b.WriteByte(byte(id))
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func TestACharacterInSeveralTokensIsSentWhole(t *testing.T) {
	t.Parallel()
	var chunks scripted
	for _, b := range []byte("a€b") {
		chunks = append(chunks, &schemas.GenerateChunk{Tokens: []int32{int32(b)}, Logprobs: []float32{0}, Versions: []int32{0}})
	}
	chunks = append(chunks, &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateLength})
	h := New(defaultAPI(), chunks, runes{}, nil, slog.New(slog.DiscardHandler)).Handler()
	events, done := stream(t, post(t, h, "/v1/completions", `{"prompt": "x", "stream": true}`).Body)
	require.True(t, done)
	var parts []string
	for _, e := range events {
		parts = append(parts, decode[completionAnswer](t, []byte(e)).Choices[0].Text)
	}
	require.Equal(t, []string{"a", "", "", "€", "b", ""}, parts)
}

// counted counts the tokens that are decoded. Its text of a token depends on the one before.
type counted struct {
	Tokenizer
	tokens *int
}

func (c counted) Decode(ids []int32) string {
	*c.tokens += len(ids)
	return c.Tokenizer.Decode(ids)
}

// Defect S12: the whole answer was decoded again with each chunk.
func TestAStreamDecodesEachTokenAFewTimes(t *testing.T) {
	t.Parallel()
	for name, tokenizer := range map[string]Tokenizer{"words": numbers{}, "bytes": runes{}} {
		rapid.Check(t, func(t *rapid.T) {
			var ids []int32
			for _, b := range []byte(rapid.StringOfN(rapid.SampledFrom([]rune("ab €😀é\uFFFD")), 200, -1, -1).Draw(t, "text")) {
				ids = append(ids, int32(b))
			}
			decoded := 0
			a, each := newAnswer(""), counted{tokenizer, &decoded}
			for rest := ids; len(rest) > 0; {
				n := rapid.IntRange(1, min(3, len(rest))).Draw(t, "chunk")
				a.tokens = append(a.tokens, rest[:n]...)
				rest = rest[n:]
				before := a.text
				a.readText(each)
				require.True(t, strings.HasPrefix(a.text, before), "what was sent stays")
			}
			require.Equal(t, strings.TrimRight(tokenizer.Decode(ids), "\uFFFD"), strings.TrimRight(a.text, "\uFFFD"), name)
			require.Less(t, decoded, 12*len(ids), name)
		})
	}
}

func TestAnErrorInAStreamIsAnEvent(t *testing.T) {
	t.Parallel()
	h := New(defaultAPI(), scripted{
		{Tokens: []int32{65}, Logprobs: []float32{0}, Versions: []int32{0}},
		{Done: true, Stop: schemas.GenerateError, Error: "the engine is stopping", Retry: true},
	}, runes{}, nil, slog.New(slog.DiscardHandler)).Handler()
	w := post(t, h, "/v1/chat/completions", `{"messages": [{"content": "x"}], "stream": true}`)
	require.Equal(t, http.StatusOK, w.Code)
	events, done := stream(t, w.Body)
	require.False(t, done)
	require.Len(t, events, 2)
	require.Equal(t, api.ErrorDetail{Message: "the engine is stopping", Type: "server_error", Code: "overloaded"}, decode[api.ErrorBody](t, []byte(events[1])).Error)
}

func FuzzCompletionBody(f *testing.F) {
	for _, seed := range []string{
		`{"prompt": "1 2", "max_tokens": 2}`, `{"prompt": [1], "stop": "3", "stream": true}`, `{"prompt": [[]]}`, `{"prompt": [null]}`,
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "1"}]}]}`, `{"messages": [{"content": null}], "stop": null}`,
	} {
		f.Add([]byte(seed))
	}
	h := New(defaultAPI(), scripted{{Done: true, Stop: schemas.GenerateLength}}, numbers{}, nil, slog.New(slog.DiscardHandler)).Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
			w := post(t, h, path, string(body))
			require.Contains(t, []int{200, 400, 404, 413}, w.Code)
			if w.Header().Get("Content-Type") == "application/json" {
				require.True(t, json.Valid(w.Body.Bytes()))
			}
		}
	})
}

// Newcomer's section 7: without a stop of its own a request ends at the configured one, which stays in the text.
func TestARequestWithoutAStopEndsAtTheConfiguredOne(t *testing.T) {
	t.Parallel()
	free := expect(t, []int32{1}, 8, 1, 9)
	at := free.Tokens[4]
	cfg := defaultAPI()
	cfg.Stop = []string{strconv.Itoa(int(at))}
	h := newHandler(t, cfg, true)
	ended := expect(t, []int32{1}, 8, 1, 9, at)
	require.Less(t, len(ended.Tokens), 8)
	for _, c := range []struct {
		more   string
		finish string
		want   *schemas.GenerateChunk
	}{
		{"", "stop", ended},
		{`, "stop": null`, "stop", ended},
		{`, "stop": []`, "length", free},
		{`, "stop": ["63"]`, "length", free},
		{`, "stop_token_ids": []`, "length", free},
	} {
		w := post(t, h, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "1"}], "max_tokens": 8, "seed": 9`+c.more+`}`)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		got := decode[chatAnswer](t, w.Body.Bytes()).Choices[0]
		require.Equal(t, c.finish, *got.FinishReason, c.more)
		require.Equal(t, numbers{}.Decode(c.want.Tokens), got.Message.Content, c.more)
	}
	cfg.Stop = []string{"1 2"}
	_, err := New(cfg, nil, numbers{}, nil, slog.New(slog.DiscardHandler)).Listen()
	require.ErrorContains(t, err, `openai.stop: "1 2" is 2 tokens: a stop must be one token`)
}

// tags is a tokenizer whose every token is a tag.
type tags struct{ numbers }

func (tags) Decode(ids []int32) string { return strings.Repeat("<search>", len(ids)) }

// Who asks by hand reads the agent's tags, not the escapes that JSON within HTML needs.
func TestTagsInAnswersAreNotEscaped(t *testing.T) {
	t.Parallel()
	h := New(defaultAPI(), oracle{version: 3}, tags{}, nil, slog.New(slog.DiscardHandler)).Handler()
	require.Contains(t, post(t, h, "/v1/completions", `{"prompt":"1 2","max_tokens":2}`).Body.String(), `"text":"<search><search>"`)
	require.Contains(t, post(t, h, "/v1/completions", `{"prompt":"1 2","max_tokens":2,"stream":true}`).Body.String(), `<search>`)
}

// Newcomer's section 7: a wrong method on a path that there is.
func TestAWrongMethodIsTold(t *testing.T) {
	t.Parallel()
	h := newHandler(t, defaultAPI(), true)
	for path, allowed := range map[string]string{
		"/v1/completions": "POST", "/v1/chat/completions": "POST", "/v1/models": "GET", "/v1/models/weir": "GET", "/health": "GET",
	} {
		method := http.MethodDelete
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, path)
		require.Equal(t, allowed, w.Header().Get("Allow"), path)
		require.Equal(t, "method_not_allowed", decode[api.ErrorBody](t, w.Body.Bytes()).Error.Code)
	}
}
