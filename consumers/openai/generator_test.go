package openai

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	oracleVocabulary = 23
	oracleLength     = 64
	oracleChunk      = 3
)

// oracle is a Generator whose next token depends on the tokens before it, the temperature and the seed alone.
type oracle struct{ version int64 }

func (o oracle) Version() int64 { return o.version }

// Generate answers in chunks of oracleChunk tokens, and refuses what a Sampler refuses.
func (o oracle) Generate(_ context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	refuse := func(retry bool, text string) error {
		return emit(&schemas.GenerateChunk{Done: true, Stop: schemas.GenerateError, Error: text, Retry: retry})
	}
	if o.version < 0 {
		return refuse(true, "no weights yet")
	}
	if fault := oracleFault(r); fault != "" {
		return refuse(false, ErrBadRequest.Error()+": "+fault)
	}
	whole := o.replay(r)
	for from := 0; ; from += oracleChunk {
		to := min(from+oracleChunk, len(whole.Tokens))
		c := &schemas.GenerateChunk{Tokens: whole.Tokens[from:to], Logprobs: whole.Logprobs[from:to], Versions: whole.Versions[from:to]}
		if to == len(whole.Tokens) {
			c.Done, c.Stop = true, whole.Stop
		}
		if err := emit(c); err != nil || c.Done {
			return err
		}
	}
}

// oracleFault is why a request is refused; "" for one that is in order.
func oracleFault(r *schemas.GenerateRequest) string {
	switch {
	case len(r.Tokens) == 0:
		return "no tokens"
	case r.MaxTokens <= 0:
		return fmt.Sprintf("max_tokens is %d: must be positive", r.MaxTokens)
	case r.Temperature < 0:
		return fmt.Sprintf("temperature is %g: must not be negative", r.Temperature)
	}
	for i, token := range r.Tokens {
		if token < 0 || token >= oracleVocabulary {
			return fmt.Sprintf("token %d is %d: the vocabulary has %d", i, token, oracleVocabulary)
		}
	}
	return ""
}

// replay is the whole answer to a request.
func (o oracle) replay(r *schemas.GenerateRequest) *schemas.GenerateChunk {
	out := &schemas.GenerateChunk{Stop: schemas.GenerateLength}
	tokens := slices.Clone(r.Tokens)
	for limit := min(oracleLength, len(tokens)+r.MaxTokens); len(tokens) < limit; {
		h := fnv.New64a()
		fmt.Fprint(h, tokens, r.Temperature, r.Seed, o.version)
		token := int32(h.Sum64() % oracleVocabulary) //nolint:gosec // below the vocabulary
		tokens = append(tokens, token)
		out.Tokens = append(out.Tokens, token)
		out.Logprobs = append(out.Logprobs, -float32(h.Sum64()>>32)/math.MaxUint32)
		out.Versions = append(out.Versions, int32(o.version)) //nolint:gosec // a small number
		if slices.Contains(r.StopTokens, token) {
			out.Stop = schemas.GenerateStopToken
			break
		}
	}
	return out
}

// Requests that the oracle refuses are refused as a Sampler words it, so that the tests of statuses hold for both.
func TestTheOracleRefusesAsSamplersDo(t *testing.T) {
	t.Parallel()
	var got *schemas.GenerateChunk
	require.NoError(t, oracle{version: 1}.Generate(t.Context(), &schemas.GenerateRequest{}, func(c *schemas.GenerateChunk) error { got = c; return nil }))
	require.True(t, strings.HasPrefix(got.Error, ErrBadRequest.Error()))
}
