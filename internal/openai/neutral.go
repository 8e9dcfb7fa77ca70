package openai

import "encoding/json"

// Neutral are the settings of OpenAI's requests that change nothing of the distribution here: user, storage,
// price, speed. All servers of the API have the same list: a client that works at a server works at the others.
type Neutral struct {
	Metadata             json.RawMessage `json:"metadata"`
	Moderation           json.RawMessage `json:"moderation"`
	Prediction           json.RawMessage `json:"prediction"`
	PromptCacheKey       json.RawMessage `json:"prompt_cache_key"`
	PromptCacheOptions   json.RawMessage `json:"prompt_cache_options"`
	PromptCacheRetention json.RawMessage `json:"prompt_cache_retention"`
	ReasoningEffort      json.RawMessage `json:"reasoning_effort"`
	SafetyIdentifier     json.RawMessage `json:"safety_identifier"`
	ServiceTier          json.RawMessage `json:"service_tier"`
	Store                json.RawMessage `json:"store"`
	User                 json.RawMessage `json:"user"`
	Verbosity            json.RawMessage `json:"verbosity"`

	// Media asks for more than a policy of text has.
	Media
}

// Media are settings of a request that ask for something else than text, or for a service beside the model.
type Media struct {
	Audio            json.RawMessage `json:"audio"`
	Modalities       []string        `json:"modalities"`
	WebSearchOptions json.RawMessage `json:"web_search_options"`
}

// Refused names the first setting that asks for something else than text, and why it is refused; nil where none does.
func (m *Media) Refused() error {
	for _, modality := range m.Modalities {
		if modality != "text" {
			return BadRequest("unsupported_parameter", "modalities: %.40q is not supported: the policy writes text", modality)
		}
	}
	switch {
	case Given(m.Audio):
		return BadRequest("unsupported_parameter", "audio is not supported: the policy writes text")
	case Given(m.WebSearchOptions):
		return BadRequest("unsupported_parameter", "web_search_options is not supported: whoever asks runs the tools")
	}
	return nil
}

// Given reports whether a field of a request is there and not null.
func Given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
