package openai

import (
	"errors"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	api "github.com/weir-rl/weir/internal/openai"
)

// errStopText ends a generation whose text has come to a stop.
var errStopText = errors.New("the text came to a stop")

// WithEnds has every answer end at certain tokens, whatever else a request names, and leaves them out of the text: the tokens that a
// model ends its answers with.
func (o *API) WithEnds(ids []int32) *API {
	o.ends = ids
	return o
}

// addStop adds a stop that a request names. A stop that is a token by itself ends the sampling there; any other is looked for in the
// text, since a tokenizer of bytes spells the same text in many ways.
func (o *API) addStop(p *prompt, stop string) error {
	if stop == "" {
		return api.BadRequest("invalid_parameter", `stop: "" is in every text`)
	}
	ids := o.tokenizer.Encode(stop)
	_, words := o.tokenizer.(tokenizer.WordLevel)
	spelt, knows := o.tokenizer.(tokenizer.Marker)
	if len(ids) == 1 && (words || !knows || spelt.Special(ids[0])) {
		p.silent = append(p.silent, ids[0])
		return nil
	}
	p.stops = append(p.stops, stop)
	return nil
}

// cutAtStop looks for the stops in an answer's text, all of which is certain. Before the end it holds back a text that may become a stop.
// stopped reports that a stop was found, and that the text ends before it.
func (p *prompt) cutAtStop(a *answer, done bool) (stopped bool) {
	if len(p.stops) == 0 {
		return false
	}
	at, end := -1, len(a.text)+1
	for _, s := range p.stops { // the stop that is complete first, so that it does not matter how the text comes
		if i := strings.Index(a.text, s); i >= 0 && (i+len(s) < end || i+len(s) == end && i < at) {
			at, end = i, i+len(s)
		}
	}
	if at >= 0 {
		a.text, a.finish = a.text[:at], "stop"
		return true
	}
	if !done {
		a.text = a.text[:len(a.text)-p.begunStop(a.text)]
	}
	return false
}

// begunStop is the length of the longest end of a text that begins a stop.
func (p *prompt) begunStop(text string) int {
	most := 0
	for _, s := range p.stops {
		for n := min(len(s)-1, len(text)); n > most; n-- {
			if strings.HasSuffix(text, s[:n]) {
				most = n
			}
		}
	}
	return most
}

// isSilent reports whether an answer's last token is left out of its text.
func (p *prompt) isSilent(id int32) bool { return slices.Contains(p.silent, id) }
