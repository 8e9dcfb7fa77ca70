package openai

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// letters is a tokenizer of bytes, with one token more that controls the model.
type letters struct{}

const lastLetter = 256

func (letters) Encode(text string) (ids []int32) {
	for i := range len(text) {
		ids = append(ids, int32(text[i]))
	}
	return ids
}

func (letters) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		if id == lastLetter {
			b = append(b, "<end>"...)
			continue
		}
		b = append(b, byte(id))
	}
	return string(b)
}

func (letters) Special(id int32) bool { return id == lastLetter }

// typist answers what it is told, by letter, and notes what it was asked.
type typist struct {
	says  func(r *schemas.GenerateRequest) string
	at    int // letters at a time
	mu    sync.Mutex
	asked []*schemas.GenerateRequest
	typed int
}

func (*typist) Version() int64 { return 1 }

func (y *typist) Generate(ctx context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	y.mu.Lock()
	y.asked = append(y.asked, r)
	y.mu.Unlock()
	ids := letters{}.Encode(y.says(r))
	stop := schemas.GenerateLength
	if slices.Contains(r.StopTokens, lastLetter) {
		ids, stop = append(ids, lastLetter), schemas.GenerateStopToken
	}
	for len(ids) > 0 {
		n := min(y.at, len(ids))
		c := &schemas.GenerateChunk{Tokens: ids[:n], Logprobs: make([]float32, n), Versions: make([]int32, n), Done: n == len(ids)}
		if c.Done {
			c.Stop = stop
		}
		y.mu.Lock()
		y.typed += n
		y.mu.Unlock()
		if err := emit(c); err != nil {
			return fmt.Errorf("send a chunk: %w", err)
		}
		ids = ids[n:]
	}
	return ctx.Err()
}

func typing(y *typist) http.Handler {
	return New(DefaultConfig(), y, letters{}, nil, slog.New(slog.DiscardHandler)).WithEnds([]int32{lastLetter}).Handler()
}

func TestSeveralAnswersHaveSeedsOfTheirOwn(t *testing.T) {
	t.Parallel()
	y := &typist{at: 2, says: func(r *schemas.GenerateRequest) string {
		return fmt.Sprintf("%s%d", letters{}.Decode(r.Tokens), r.Seed)
	}}
	got := decode[completionAnswer](t, post(t, typing(y), "/v1/completions", `{"prompt": ["a", [98, 99]], "n": 3, "seed": 7}`).Body.Bytes())
	require.Len(t, got.Choices, 6)
	seeds := map[string]bool{}
	for i, c := range got.Choices {
		require.Equal(t, i, c.Index)
		require.Equal(t, "stop", *c.FinishReason)
		prompt := []string{"a", "bc"}[i/3]
		require.True(t, strings.HasPrefix(c.Text, prompt), c.Text)
		seeds[c.Text[len(prompt):]] = true
	}
	require.Equal(t, "a7", got.Choices[0].Text, "the first is what the request would get alone")
	require.Len(t, seeds, 3, "the same for each prompt")
	require.Equal(t, 3, got.Usage.PromptTokens, "each prompt is counted once")
	again := decode[completionAnswer](t, post(t, typing(y), "/v1/completions", `{"prompt": ["a", [98, 99]], "n": 3, "seed": 7}`).Body.Bytes())
	require.Equal(t, got.Choices, again.Choices, "the same seed gives the same answers")

	chatted := decode[chatAnswer](t, post(t, typing(y), "/v1/chat/completions", `{"messages": [{"role": "user", "content": "q"}], "n": 2, "seed": 7}`).Body.Bytes())
	require.Len(t, chatted.Choices, 2)
	require.Equal(t, "q7", chatted.Choices[0].Message.Content)
	require.NotEqual(t, chatted.Choices[0].Message.Content, chatted.Choices[1].Message.Content)
}

func TestSeveralAnswersStreamSideBySide(t *testing.T) {
	t.Parallel()
	y := &typist{at: 1, says: func(r *schemas.GenerateRequest) string { return fmt.Sprint(r.Seed) }}
	w := post(t, typing(y), "/v1/chat/completions",
		`{"messages": [{"role": "user", "content": "q"}], "n": 3, "seed": 7, "stream": true, "stream_options": {"include_usage": true}}`)
	texts, roles, finished := map[int]string{}, map[int]int{}, map[int]string{}
	events := strings.Split(strings.TrimSpace(w.Body.String()), "\n\n")
	require.Equal(t, "data: [DONE]", events[len(events)-1])
	for _, e := range events[:len(events)-1] {
		got := decode[chatAnswer](t, []byte(strings.TrimPrefix(e, "data: ")))
		for _, c := range got.Choices {
			texts[c.Index] += c.Delta.Content
			if c.Delta.Role != "" {
				roles[c.Index]++
			}
			if c.FinishReason != nil {
				finished[c.Index] = *c.FinishReason
			}
		}
	}
	require.Equal(t, map[int]int{0: 1, 1: 1, 2: 1}, roles)
	require.Equal(t, map[int]string{0: "stop", 1: "stop", 2: "stop"}, finished)
	require.Equal(t, "7", texts[0])
	require.Len(t, texts, 3)
	require.NotEqual(t, texts[1], texts[2])
}

// An answer ends before the first of its stops, whatever tokens spell it, streamed or whole, and nothing of the stop is sent.
func TestAnAnswerEndsBeforeItsStops(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringMatching(`[abc]{0,20}`).Draw(rt, "text")
		stops := rapid.SliceOfN(rapid.StringMatching(`[abc]{1,4}`), 1, 3).Draw(rt, "stops")
		at := rapid.IntRange(1, 5).Draw(rt, "at")
		first, end := len(text), len(text)+1 // where the control token ends it
		for _, s := range stops {
			if i := strings.Index(text, s); i >= 0 && (i+len(s) < end || i+len(s) == end && i < first) {
				first, end = i, i+len(s)
			}
		}
		want := text[:first]
		list := `["` + strings.Join(stops, `", "`) + `"]`
		y := &typist{at: at, says: func(*schemas.GenerateRequest) string { return text }}
		whole := decode[completionAnswer](t, post(t, typing(y), "/v1/completions", `{"prompt": "p", "stop": `+list+`}`).Body.Bytes())
		require.Equal(rt, want, whole.Choices[0].Text)
		require.Equal(rt, "stop", *whole.Choices[0].FinishReason)
		require.LessOrEqual(rt, y.typed, end+at, "sampling ends there")

		w := post(t, typing(y), "/v1/completions", `{"prompt": "p", "stream": true, "stop": `+list+`}`)
		sent := ""
		for e := range strings.SplitSeq(strings.TrimSpace(w.Body.String()), "\n\n") {
			if e != "data: [DONE]" {
				sent += decode[completionAnswer](t, []byte(strings.TrimPrefix(e, "data: "))).Choices[0].Text
			}
		}
		require.Equal(rt, want, sent)
	})
}

// The tokens that a model ends its answers with are left out of the text, named or not.
func TestTheEndOfAnAnswerIsNoPartOfIt(t *testing.T) {
	t.Parallel()
	y := &typist{at: 3, says: func(*schemas.GenerateRequest) string { return "hello" }}
	for _, more := range []string{``, `, "stop": []`, `, "stop": "xyz"`, `, "stop_token_ids": [1]`} {
		got := decode[completionAnswer](t, post(t, typing(y), "/v1/completions", `{"prompt": "p"`+more+`}`).Body.Bytes())
		require.Equal(t, "hello", got.Choices[0].Text, more)
		require.Equal(t, "stop", *got.Choices[0].FinishReason)
	}
	require.Contains(t, y.asked[0].StopTokens, int32(lastLetter))
}
