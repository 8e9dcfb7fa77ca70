package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// stopped is what a context without room says.
var stopped = &producers.StoppedError{Reason: schemas.StopTokens}

// Finding A21 of the second attack, and section 5 of the servers' review: what unchanged code of the SDKs sends is taken where it changes
// nothing of what is sampled.
func TestWhatClientsSendIsTakenWhereItChangesNothing(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	const chat, responses, messages = "chat/completions", "responses", "messages"
	n := 0
	for path, all := range map[string][]string{
		chat: {
			`"stop": null`, `"response_format": {"type": "text"}`, `"n": null`, `"logprobs": null`, `"presence_penalty": null, "frequency_penalty": null, "top_p": null`,
			`"modalities": ["text"]`, `"functions": []`, `"prediction": {"type": "content", "content": "x"}`, `"web_search_options": null`, `"audio": null`,
			`"prompt_cache_retention": "24h"`, `"prompt_cache_options": {}`, `"reasoning_effort": "low", "verbosity": "low"`, `"parallel_tool_calls": false`,
			`"metadata": {}, "store": false, "user": "u", "service_tier": "auto", "safety_identifier": "s", "prompt_cache_key": "k", "moderation": null`,
		},
		responses: {
			`"stream_options": {"include_obfuscation": false}`, `"max_tool_calls": 3`, `"conversation": null, "prompt": null`, `"instructions": null`,
			`"context_management": []`, `"prompt_cache_retention": "24h"`, `"text": {"format": {"type": "text"}, "verbosity": "low"}`,
			`"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"], "store": false, "truncation": "auto", "background": false`,
		},
		messages: {
			`"cache_control": {"type": "ephemeral"}`, `"container": null, "inference_geo": "us"`, `"speed": "fast", "fallbacks": []`,
			`"system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]`, `"output_config": {"effort": "low"}`,
			`"tools": [{"name": "f", "input_schema": {"type": "object"}, "input_examples": [{}], "eager_input_streaming": true, "defer_loading": false,
				"allowed_callers": ["direct"], "strict": true, "cache_control": {"type": "ephemeral"}}]`,
			`"thinking": {"type": "enabled", "budget_tokens": 1024}`, `"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}`,
		},
	} {
		for _, more := range all {
			n++
			said := `"messages": [{"role": "user", "content": "` + strconv.Itoa(n) + `"}], "max_tokens": 9`
			if path == responses {
				said = `"input": "a"`
			}
			h.session.most = n + 1
			status, body := h.post(t, path, `{"model": "m", `+said+`, `+more+`}`)
			require.Equal(t, http.StatusOK, status, "%s %s: %s", path, more, body)
		}
	}
	for path, all := range map[string]map[string]string{
		chat: {
			`"functions": [{"name": "f"}]`: "functions", `"modalities": ["audio"]`: "modalities", `"audio": {}`: "audio", `"web_search_options": {}`: "web_search_options",
		},
		responses: {`"conversation": "c"`: "conversation", `"prompt": {"id": "p"}`: "prompt"},
		messages: {
			`"output_config": {"format": {"type": "json_schema"}}`: "output_config.format", `"output_format": {"type": "json_schema"}`: "output_format",
			`"mcp_servers": [{}]`: "mcp_servers", `"tools": [{"name": "f", "allowed_callers": ["code_execution_20250825"]}]`: "allowed_callers",
		},
	} {
		for more, name := range all {
			status, body := h.post(t, path, `{"model": "m", "messages": [{"role": "user", "content": "a"}], `+more+`}`)
			if path == responses {
				status, body = h.post(t, path, `{"model": "m", "input": "a", `+more+`}`)
			}
			require.Equal(t, http.StatusBadRequest, status, "%s %s: %s", path, more, body)
			require.Contains(t, body, name)
		}
	}
}

// A name within another reaches what stands there, in each element of a list, and nothing else.
func TestIgnoredNamesReachWithinOthers(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	body := `{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f", "input_schema": {"a": 1}, "novel": 1}, {"name": "g", "novel": 2}]}`
	status, said := h.post(t, "messages", body)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, said, "novel")
	h.ignore = []string{"tools.novel", "messages.nothing.there", "tool_choice.type"}
	status, said = h.post(t, "messages", body)
	require.Equal(t, http.StatusOK, status, said)
}

// Finding A21 of the second attack: Anthropic's clients look at stop_reason for a stop sequence.
func TestAStopSequenceIsTold(t *testing.T) {
	t.Parallel()
	h := open(t, func(_ context.Context, context string) (string, error) {
		if strings.Contains(context, "long") {
			return "it goes on and on", nil
		}
		return "thought Observation: x Action: y", nil
	})
	const stops = `{"model": "m", "max_tokens": 99, "stop_sequences": ["Action:", "Observation:"], "messages": [{"role": "user", "content": "`
	_, body := h.post(t, "messages", stops+`a"}]}`)
	var m struct {
		StopReason   string  `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
		Content      []textBlock
	}
	require.NoError(t, json.Unmarshal([]byte(body), &m))
	require.Equal(t, "stop_sequence", m.StopReason)
	require.Equal(t, "Observation:", *m.StopSequence)
	require.Equal(t, "thought ", m.Content[0].Text)
	_, body = h.post(t, "messages", stops+`b"}], "stream": true}`)
	require.Contains(t, body, `"delta":{"stop_reason":"stop_sequence","stop_sequence":"Observation:"}`)
	require.NotContains(t, body[:strings.Index(body, "content_block_start")], "Observation:", "the beginning of a message has none")
	_, body = h.post(t, "messages", stops+`long"}]}`)
	require.Contains(t, body, `"stop_reason":"end_turn","stop_sequence":null`)
}

// Finding A20 of the second attack: instructions are of the request that has them, and what the input says stays.
func TestInstructionsAreOfOneRequest(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	ask := func(body string) (id, context string) {
		var r struct{ ID string }
		_, said := h.post(t, "responses", `{"model": "m", `+body+`}`)
		require.NoError(t, json.Unmarshal([]byte(said), &r), said)
		return r.ID, text(h.episode.all[len(h.episode.all)-1].tokens)
	}
	id, _ := ask(`"instructions": "OLD", "input": [{"role": "developer", "content": "KEEP"}, {"role": "user", "content": "a"}]`)
	_, context := ask(`"previous_response_id": "` + id + `", "input": "b"`)
	require.Equal(t, "system:KEEP\nuser:a\nassistant:1\nuser:b\n2\n", context)
	second, context := ask(`"previous_response_id": "` + id + `", "instructions": "NEW", "input": "b"`)
	require.Equal(t, "system:NEW\nsystem:KEEP\nuser:a\nassistant:1\nuser:b\n3\n", context)
	contexts := len(h.episode.all)
	_, context = ask(`"previous_response_id": "` + second + `", "instructions": "NEW", "input": "c"`)
	require.Len(t, h.episode.all, contexts, "the same instructions again go on in the context")
	require.Equal(t, "system:NEW\nsystem:KEEP\nuser:a\nassistant:1\nuser:b\n3\nuser:c\n4\n", context)
}

// Anthropic's tool runner keeps its conversation by thread: found by running it.
func TestAThreadGoesOnFromAMessage(t *testing.T) {
	t.Parallel()
	h := open(t, caller)
	const tools = `"tools": [{"name": "look", "input_schema": {"type": "object"}}]`
	_, body := h.post(t, "messages", `{"model": "m", "max_tokens": 99, "system": "s", "messages": [{"role": "user", "content": "a"}], "thread": {"type": "create"}, `+tools+`}`)
	var m struct {
		ID      string
		Content []toolBlock
	}
	require.NoError(t, json.Unmarshal([]byte(body), &m), body)
	on := func(id, more string) (int, string) {
		return h.post(t, "messages", `{"model": "m", "max_tokens": 99, "thread": {"type": "continue", "previous_message_id": "`+id+`"},
			"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "`+m.Content[0].ID+`", "content": "seen"}]}]`+more+`}`)
	}
	status, body := on(m.ID, "")
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "done")
	require.Len(t, h.episode.all, 1)
	require.Equal(t, "system:s\nuser:a\ncall look {\"at\": 7}\ntool:seen\ndone\n", text(h.episode.all[0].tokens))
	status, body = on("msg_1", "")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, `"details":{"error_code":"thread_not_found"}`)
	status, _ = on(m.ID, ", "+tools)
	require.Equal(t, http.StatusBadRequest, status)
	status, _ = h.post(t, "messages", `{"model": "m", "messages": [{"role": "user", "content": "a"}], "thread": {"type": "fork"}}`)
	require.Equal(t, http.StatusBadRequest, status)
}

// Section 5 of the servers' review: GET /models/{id}, and the count of a request's tokens.
func TestWhatClientsAskBesideReplies(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	get := func(path string) string {
		res, err := http.Get(h.http.URL + "/e/" + h.session.Key() + "/v1/" + path)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
		data, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return string(data)
	}
	require.Contains(t, get("models"), `"id":"policy"`)
	require.Contains(t, get("models/mine"), `"id":"mine"`)
	_, body := h.post(t, "responses/input_tokens", `{"model": "m", "instructions": "s", "input": "a"}`)
	require.JSONEq(t, `{"object": "response.input_tokens", "input_tokens": 16}`, body)
}

// Section 5 of the servers' review: a stream that waits for its reply says that it is alive, and what goes wrong after that is an event.
func TestAStreamThatWaitsSaysThatItIsAlive(t *testing.T) {
	t.Parallel()
	for path, fails := range map[string]string{
		"chat/completions": `data: {"error":{"message":"the episode has no room`, "messages": "event: error\ndata: {\"error\":{\"message\":\"the episode has no room",
		"responses": "event: error\ndata: {\"code\":\"context_length_exceeded\"",
	} {
		for _, well := range []bool{true, false} {
			seen := make(chan struct{})
			h := open(t, func(ctx context.Context, _ string) (string, error) {
				<-seen
				if well {
					return "yes", nil
				}
				return "", stopped
			})
			h.ping = time.Millisecond
			body := `{"model": "m", "stream": true, "messages": [{"role": "user", "content": "a"}]}`
			if path == "responses" {
				body = `{"model": "m", "stream": true, "input": "a"}`
			}
			res, err := http.Post(h.http.URL+"/e/"+h.session.Key()+"/v1/"+path, "application/json", strings.NewReader(body))
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, res.StatusCode)
			ping := make([]byte, len(": ping\n\n"))
			_, err = io.ReadFull(res.Body, ping)
			require.NoError(t, err)
			require.Equal(t, ": ping\n\n", string(ping))
			close(seen)
			rest, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			if well {
				require.Contains(t, string(rest), "yes")
				require.NotContains(t, string(rest), `"error":{`)
			} else {
				require.Contains(t, string(rest), fails)
			}
		}
	}
	h := open(t, func(context.Context, string) (string, error) { return "", stopped })
	status, _ := h.post(t, "chat/completions", `{"stream": true, "messages": [{"role": "user", "content": "a"}]}`)
	require.Equal(t, http.StatusBadRequest, status, "where nothing was written a refusal has its status")
}
