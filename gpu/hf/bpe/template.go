package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
)

// template is the ids that the post-processor puts before and after a text.
type template struct{ before, after []int32 }

// templatePiece is a part of a TemplateProcessing: a token or the text.
type templatePiece struct {
	SpecialToken *struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	}
	Sequence *struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	}
}

type templateProcessing struct {
	Type          string          `json:"type"`
	Single        []templatePiece `json:"single"`
	Pair          json.RawMessage `json:"pair"` // texts do not come in pairs
	SpecialTokens map[string]struct {
		ID     string   `json:"id"`
		IDs    []int32  `json:"ids"`
		Tokens []string `json:"tokens"`
	} `json:"special_tokens"`
}

// readTemplate reads the post-processor; id finds the tokens that it names.
func (f *file) readTemplate(id func(string) (int32, bool)) (template, error) {
	list, err := sequenceSteps(f.PostProcessor, "processors")
	if err != nil {
		return template{}, err
	}
	var out template
	seen := false
	for _, part := range list {
		kind, err := typeOf(part)
		if err != nil {
			return template{}, err
		}
		switch kind {
		case "ByteLevel": // it moves offsets, which are not returned
			if err := decodeStrict(part, &byteLevel{}); err != nil {
				return template{}, fmt.Errorf("type ByteLevel: %w", err)
			}
		case "TemplateProcessing":
			if seen {
				return template{}, errors.New("type TemplateProcessing: there twice")
			}
			seen = true
			if out, err = readTemplate(part, id); err != nil {
				return template{}, fmt.Errorf("type TemplateProcessing: %w", err)
			}
		default:
			return template{}, refuseUnsupported("type", kind, "ByteLevel or TemplateProcessing")
		}
	}
	return out, nil
}

func readTemplate(part json.RawMessage, id func(string) (int32, bool)) (out template, err error) {
	var p templateProcessing
	if err := decodeStrict(part, &p); err != nil {
		return template{}, err
	}
	texts := 0
	for i, piece := range p.Single {
		switch {
		case (piece.SpecialToken == nil) == (piece.Sequence == nil):
			return template{}, fmt.Errorf("single[%d]: want either SpecialToken or Sequence", i)
		case piece.Sequence != nil:
			if texts++; texts > 1 || piece.Sequence.ID != "A" {
				return template{}, refuseUnsupported(fmt.Sprintf("single[%d].Sequence", i), piece.Sequence.ID, "A, once")
			}
			continue
		}
		named, ok := p.SpecialTokens[piece.SpecialToken.ID]
		if !ok {
			return template{}, fmt.Errorf("single[%d]: %q is not in special_tokens", i, piece.SpecialToken.ID)
		}
		if len(named.IDs) != len(named.Tokens) {
			return template{}, fmt.Errorf("special_tokens[%q]: %d ids, %d tokens", piece.SpecialToken.ID, len(named.IDs), len(named.Tokens))
		}
		for k, token := range named.Tokens {
			if have, ok := id(token); !ok || have != named.IDs[k] {
				return template{}, fmt.Errorf("special_tokens[%q]: token %q has not id %d", piece.SpecialToken.ID, token, named.IDs[k])
			}
		}
		if texts == 0 {
			out.before = append(out.before, named.IDs...)
		} else {
			out.after = append(out.after, named.IDs...)
		}
	}
	if texts == 0 {
		return template{}, errors.New("single has no Sequence: the text would be left out")
	}
	return out, nil
}
