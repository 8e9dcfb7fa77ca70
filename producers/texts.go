package producers

import "github.com/weir-rl/weir/schemas"

// fitTexts shortens a trajectory's texts, the longest first, until they have at most so many bytes together. The rewards are of the whole
// ones.
func fitTexts(t *schemas.Trajectory, most int) {
	for bound := schemas.MaxCallText; textBytes(t) > most && bound > 0; bound /= 2 {
		t.Answer = cutText(t.Answer, max(bound, most/2))
		for i := range t.Turns {
			for k := range t.Turns[i].Calls {
				call := &t.Turns[i].Calls[k]
				call.Arguments, call.Error = cutText(call.Arguments, bound), cutText(call.Error, bound)
				if call.Tool = cutText(call.Tool, bound); call.Tool == "" {
					call.Tool = unnamed
				}
			}
		}
	}
}

// textBytes returns how many bytes of text a trajectory has.
func textBytes(t *schemas.Trajectory) int {
	n := len(t.Answer) + len(t.Error)
	for _, turn := range t.Turns {
		for _, call := range turn.Calls {
			n += len(call.Tool) + len(call.Arguments) + len(call.Error)
		}
	}
	return n
}

// cutText is a text cut to at most so many bytes, between characters.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && text[most]&0xc0 == 0x80 {
		most--
	}
	return text[:most]
}
