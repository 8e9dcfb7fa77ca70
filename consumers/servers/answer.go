package servers

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxLogprob is as far above 0 as a log-probability's rounding goes.
const maxLogprob = 1e-3

// checkShape refuses an answer that does not fit together, or is longer than was asked for.
func (a *Answer) checkShape(most int) error {
	switch {
	case len(a.Logprobs) != len(a.Tokens):
		return fmt.Errorf("%w: %d tokens with %d log-probabilities", ErrMalformed, len(a.Tokens), len(a.Logprobs))
	case len(a.Tokens) > most:
		return fmt.Errorf("%w: %d tokens where %d were asked for", ErrMalformed, len(a.Tokens), most)
	}
	switch a.Finish {
	case FinishStop, FinishLength, FinishAborted, FinishError:
		return nil
	default:
		return fmt.Errorf("%w: finish_reason %q", ErrMalformed, a.Finish)
	}
}

// checkValues refuses tokens outside the vocabulary and numbers that are no log-probabilities.
func (a *Answer) checkValues(vocabulary int) error {
	for i, token := range a.Tokens {
		if token < 0 || int(token) >= vocabulary {
			return fmt.Errorf("%w: token %d is %d: the vocabulary has %d", ErrMalformed, i, token, vocabulary)
		}
		if a.Logprobs[i] > maxLogprob {
			return fmt.Errorf("%w: the log-probability of token %d is %g", ErrMalformed, i, a.Logprobs[i])
		}
	}
	return nil
}

// tokenVersions are the versions of the tokens by the spans: they cover all tokens in order, name versions of this Pool by their
// labels, and do not go back.
func (a *Answer) tokenVersions(tag string, low, high int64) ([]int32, error) {
	out := make([]int32, 0, len(a.Tokens))
	last := low
	for _, s := range a.Spans {
		v, ok := parseLabel(tag, s.Label)
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: it samples with weights %q", errReplaced, s.Label)
		case s.Start != len(out) || s.End < s.Start || s.End > len(a.Tokens):
			return nil, fmt.Errorf("%w: the weights of tokens %d to %d follow those of token %d, of %d", ErrMalformed, s.Start, s.End, len(out), len(a.Tokens))
		case v < last || v > high:
			return nil, fmt.Errorf("%w: version %d after version %d, at a server that has version %d", ErrMalformed, v, last, high)
		}
		for len(out) < s.End {
			out = append(out, int32(v)) //nolint:gosec // Swap refuses versions above
		}
		last = v
	}
	if len(out) != len(a.Tokens) {
		return nil, fmt.Errorf("%w: the weights of %d tokens are named, of %d", ErrMalformed, len(out), len(a.Tokens))
	}
	return out, nil
}

// parseLabel reads a label of this Pool.
func parseLabel(tag, label string) (int64, bool) {
	number, ours := strings.CutPrefix(label, tag+"-v")
	v, err := strconv.ParseInt(number, 10, 64)
	return v, ours && err == nil && v >= 0
}

// countVouched is how many tokens have a log-probability: the first without, and the tokens after it, are drawn again.
func (a *Answer) countVouched() int {
	for i, lp := range a.Logprobs {
		if math.IsNaN(float64(lp)) {
			return i
		}
	}
	return len(a.Tokens)
}
