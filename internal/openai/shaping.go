package openai

import "encoding/json"

// Shaping are the settings of a request that would draw tokens from another distribution than the policy's.
type Shaping struct {
	TopP              *float64                   `json:"top_p"`
	TopK              *int                       `json:"top_k"`
	MinP              *float64                   `json:"min_p"`
	PresencePenalty   float64                    `json:"presence_penalty"`
	FrequencyPenalty  float64                    `json:"frequency_penalty"`
	RepetitionPenalty *float64                   `json:"repetition_penalty"`
	LogitBias         map[string]json.RawMessage `json:"logit_bias"`
	ResponseFormat    *ResponseFormat            `json:"response_format"`
}

// ResponseFormat asks for an answer in a format.
type ResponseFormat struct {
	Type       string          `json:"type"`
	JSONSchema json.RawMessage `json:"json_schema"`
}

// whySoftmax is why such a setting is refused.
const whySoftmax = "tokens are drawn one at a time from the whole softmax, so that their log-probabilities are the policy's"

// setting is a setting that is not neutral, and why it is refused.
type setting struct{ name, why string }

// shapingSettings are the settings that are not neutral.
func (s *Shaping) shapingSettings() (out []setting) {
	for _, f := range []struct {
		name string
		set  bool
		why  string
	}{
		{"top_p", s.TopP != nil && *s.TopP != 1, whySoftmax},
		{"top_k", s.TopK != nil && *s.TopK > 0, whySoftmax},
		{"min_p", s.MinP != nil && *s.MinP != 0, whySoftmax},
		{"presence_penalty", s.PresencePenalty != 0, whySoftmax},
		{"frequency_penalty", s.FrequencyPenalty != 0, whySoftmax},
		{"repetition_penalty", s.RepetitionPenalty != nil && *s.RepetitionPenalty != 1, whySoftmax},
		{"logit_bias", len(s.LogitBias) > 0, whySoftmax},
		{
			"response_format", s.ResponseFormat != nil && s.ResponseFormat.Type != "" && s.ResponseFormat.Type != "text",
			"nothing holds the text to a format; ask for it in the prompt",
		},
	} {
		if f.set {
			out = append(out, setting{f.name, f.why})
		}
	}
	return out
}

// Names are the settings that are not neutral; none where all are.
func (s *Shaping) Names() (out []string) {
	for _, f := range s.shapingSettings() {
		out = append(out, f.name)
	}
	return out
}

// Refused names the first setting that is not neutral, and why it is refused; nil where all are.
func (s *Shaping) Refused() error {
	for _, f := range s.shapingSettings() {
		return BadRequest("unsupported_parameter", "%s is not supported: %s", f.name, f.why)
	}
	return nil
}
