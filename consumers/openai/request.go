package openai

import (
	"encoding/json"
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	api "github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/schemas"
)

// samplingBody has the settings of both completions and chat completions.
type samplingBody struct {
	Model         string             `json:"model"`
	MaxTokens     *int               `json:"max_tokens"`
	Temperature   *float32           `json:"temperature"`
	Seed          *int64             `json:"seed"`
	Stop          api.TextList       `json:"stop"`
	Stream        bool               `json:"stream"`
	StreamOptions *api.StreamOptions `json:"stream_options"`

	// Not OpenAI's: vLLM's stop_token_ids and return_token_ids, and ours.
	StopTokenIDs   []int32 `json:"stop_token_ids"`
	ReturnTokenIDs bool    `json:"return_token_ids"`
	// Episode names the cache to keep from call to call; LastCall lets it go.
	Episode  string `json:"episode"`
	LastCall bool   `json:"last_call"`

	api.Neutral
	api.Shaping

	// Settings that this server does not have are refused.
	N                 *int              `json:"n"`
	BestOf            *int              `json:"best_of"`
	Echo              bool              `json:"echo"`
	Suffix            string            `json:"suffix"`
	Tools             []json.RawMessage `json:"tools"`
	ToolChoice        json.RawMessage   `json:"tool_choice"`
	ParallelToolCalls *bool             `json:"parallel_tool_calls"`
	Functions         []json.RawMessage `json:"functions"`
	FunctionCall      json.RawMessage   `json:"function_call"`
}

// whyTools is why tools are refused where no chat template shows them.
const whyTools = "the policy calls tools by tags in its text, such as <search>; whoever asks reads them and shows the result in the next message"

// whyTraining is why a request is refused that would be ignored in part otherwise.
const whyTraining = "return_token_ids asks for samples to train on, whose distribution must be the policy's"

// ignoresShaping reports whether a request's settings that shape the distribution are ignored.
func (o *API) ignoresShaping(b *samplingBody) bool {
	return o.cfg.Shaping == ShapingIgnore && !b.ReturnTokenIDs
}

// ignoredSettings names the settings of a request that do nothing.
func (o *API) ignoredSettings(b *samplingBody) []string {
	if !o.ignoresShaping(b) {
		return nil
	}
	names := b.Names()
	if api.ForcesCall(b.ToolChoice) {
		names = append(names, "tool_choice")
	}
	return names
}

// refuseSettings names the first setting that this server does not have, and why.
func (o *API) refuseSettings(b *samplingBody) error {
	if names := b.Names(); len(names) > 0 && o.cfg.Shaping == ShapingIgnore && b.ReturnTokenIDs {
		return api.BadRequest("unsupported_parameter", "%s is not supported: %s", names[0], whyTraining)
	}
	if err := b.Shaping.Refused(); err != nil && !o.ignoresShaping(b) {
		return err
	}
	if err := b.Media.Refused(); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		set  bool
		why  string
	}{
		{"echo", b.Echo, "the prompt is not sent back with the answer; return_token_ids tells how it was read, in prompt_token_ids"},
		{"suffix", b.Suffix != "", "the policy goes on with a text; it cannot fill a gap in one"},
		{"tools", len(b.Tools) > 0, whyTools},
		{"functions", len(b.Functions) > 0, whyTools},
	} {
		if f.set {
			return api.BadRequest("unsupported_parameter", "%s is not supported: %s", f.name, f.why)
		}
	}
	return nil
}

// prompt is a request made ready: the Sampler's request, and the stop tokens that are left out of the text.
type prompt struct {
	req *schemas.GenerateRequest
	// silent are the stop tokens that are left out of the text, stops the texts that end an answer and are left out.
	silent []int32
	stops  []string
	// stream gives each token as it comes.
	stream bool
}

// makePrompt makes the Sampler's request of a context.
func (o *API) makePrompt(b *samplingBody, tokens []int32, defaultMax int) (*prompt, error) {
	if err := o.checkModel(b.Model); err != nil {
		return nil, err
	}
	if err := o.refuseSettings(b); err != nil {
		return nil, err
	}
	p := &prompt{stream: b.Stream, req: &schemas.GenerateRequest{
		Episode: b.Episode, Tokens: tokens, MaxTokens: defaultMax, Temperature: 1, Seed: rand.Uint64(),
		StopTokens: slices.Clone(b.StopTokenIDs), Last: b.LastCall,
	}}
	if b.MaxTokens != nil {
		p.req.MaxTokens = *b.MaxTokens
	}
	if b.Temperature != nil {
		p.req.Temperature = *b.Temperature
	}
	if b.Seed != nil {
		p.req.Seed = uint64(*b.Seed)
	}
	for _, s := range b.Stop {
		if err := o.addStop(p, s); err != nil {
			return nil, err
		}
	}
	p.silent = append(p.silent, o.ends...)
	p.req.StopTokens = append(p.req.StopTokens, p.silent...)
	if b.Stop == nil && b.StopTokenIDs == nil {
		for _, s := range o.cfg.Stop {
			p.req.StopTokens = append(p.req.StopTokens, o.tokenizer.Encode(s)...)
		}
	}
	return p, nil
}

// promptTokens reads prompts: text, token ids, or a list of these.
func promptTokens(raw json.RawMessage, t Tokenizer) ([][]int32, error) {
	var text string
	var ids []int32
	var list []json.RawMessage
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, api.BadRequest("missing_parameter", "prompt: is missing")
	case json.Unmarshal(raw, &text) == nil:
		return [][]int32{wrapTokens(t, t.Encode(text))}, nil
	case json.Unmarshal(raw, &ids) == nil:
		return [][]int32{ids}, nil
	case json.Unmarshal(raw, &list) == nil && !slices.ContainsFunc(list, func(x json.RawMessage) bool { return x[0] != '"' && x[0] != '[' }):
		var out [][]int32
		for _, one := range list {
			prompts, err := promptTokens(one, t)
			if err != nil {
				return nil, err
			}
			if len(prompts) != 1 {
				return nil, api.BadRequest("invalid_parameter", "prompt: a list of lists of prompts")
			}
			out = append(out, prompts[0])
		}
		return out, nil
	}
	return nil, api.BadRequest("invalid_parameter", "prompt: want text or a list of token ids")
}

// wrapTokens adds the tokens that a tokenizer puts around a text, such as Llama 3's beginning; a tokenizer without such tokens adds none.
func wrapTokens(t Tokenizer, ids []int32) []int32 {
	if w, ok := t.(tokenizer.Wrapper); ok {
		return w.Wrap(ids)
	}
	return ids
}
