package servers

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"
)

// SettingError is a server whose settings spoil its samples: it is refused, and no retry helps.
type SettingError struct {
	// Setting names the fault and the remedy.
	Setting string
	Err     error
}

// Error names the setting first.
func (e *SettingError) Error() string {
	if e.Err == nil {
		return e.Setting
	}
	return fmt.Sprintf("%s: %v", e.Setting, e.Err)
}

// Unwrap is the error that showed it.
func (e *SettingError) Unwrap() error { return e.Err }

// probe finds out by a few calls whether a server samples from the whole softmax at the temperature of the call, sends that
// distribution's log-probabilities, and ends an answer at a stop token.
//
// The same context is asked for a token at temperature 1 and at 2, each with the most likely tokens beside it: 2 is the highest that
// vLLM takes. The distance between two tokens' log-probabilities at 2 is half of that at 1, unless they are from before the
// temperature. Under top_k or top_p the tokens that are left out have no log-probability, or the listed tokens have all of the
// probability. The same is asked once with the sampling fields and once without: then the server's own defaults are in force, and
// the same tokens have other numbers. A vocabulary that is smaller refuses the last token; a token beyond the vocabulary is not
// sent, since an SGLang that does not look at its input ends by it.
type probe struct {
	speaker    Speaker
	vocabulary int
	longest    int
	id         func() string
	salt       string
	timeout    time.Duration
	log        *slog.Logger
	spans      bool
}

const (
	// Alternatives is how many of the most likely tokens the probe asks for: as many as vLLM sends by default.
	Alternatives = 20
	// hot is the higher of the two temperatures.
	hot = 2
	// probeRounds is how many contexts are compared; hotRounds of them at both temperatures.
	probeRounds, hotRounds = 4, 2
	// leastSpread, in nats, is a distance between two tokens by which log-probabilities from before the temperature differ from others.
	leastSpread = 0.2
	// allMass is the sum of the probabilities under top_k or top_p, which a few tokens of a whole vocabulary at temperature 2 do not reach.
	allMass = 1 - 1e-4
	// meanTolerance and hotTolerance, in nats, bound how far the numbers of the same tokens may lie from each other on average,
	// oneTolerance for a single token: bfloat16 rounds a logit of 20 to an eighth.
	meanTolerance, hotTolerance, oneTolerance = 0.1, 0.04, 0.3
	// stopTokens is how many tokens a call may have that is to end at its first.
	stopTokens = 4
	// saltContext is how long a context is that may be found in a cache.
	saltContext = 64
)

// runProbe returns whether answers name the weights of each token by spans, so that calls can go on through a swap. Its [SettingError]
// names the wrong setting.
func (p *probe) runProbe(ctx context.Context) (spans bool, err error) {
	context := []int32{0, int32(p.vocabulary / 2), int32(p.vocabulary - 1)} //nolint:gosec // a vocabulary fits
	first := context
	var stops []int32
	full := 0
	for round := range probeRounds {
		warm, err := p.compareDefaults(ctx, context, 1)
		if err != nil {
			return false, err
		}
		if round < hotRounds {
			other, err := p.compareDefaults(ctx, context, hot)
			if err != nil {
				return false, err
			}
			if err := judgeTemperature(warm, other); err != nil {
				return false, err
			}
			if len(other) < p.vocabulary && sumProbabilities(other) >= allMass {
				full++
			}
		}
		if round == 0 {
			for _, l := range warm {
				stops = append(stops, l.Token)
			}
		}
		context = append(slices.Clone(context), warm[0].Token)
	}
	if full == hotRounds {
		return false, &SettingError{Setting: fmt.Sprintf("its %d most likely tokens have all of the probability at temperature %d, where the model has %d tokens: it applies top_k or top_p in spite of what the call asks for",
			Alternatives, hot, p.vocabulary)}
	}
	if err := p.probeStop(ctx, first, stops); err != nil {
		return false, err
	}
	if p.spans {
		p.spans, err = p.probeSalt(ctx)
	}
	return p.spans, err
}

// compareDefaults are the most likely tokens after a context, which must be the same by default as they are asked for.
func (p *probe) compareDefaults(ctx context.Context, context []int32, temperature float32) ([]Likely, error) {
	asked, err := p.askLikely(ctx, &Query{Tokens: context, MaxTokens: 1, Temperature: temperature, Top: Alternatives})
	if err != nil {
		return nil, err
	}
	bare := &Query{Tokens: context, MaxTokens: 1, Top: Alternatives, Bare: true}
	tolerance := meanTolerance
	if temperature != 1 {
		bare.Temperature, tolerance = temperature, hotTolerance
	}
	other, err := p.askLikely(ctx, bare)
	if err != nil {
		return nil, err
	}
	for i, l := range asked {
		if math.IsNaN(float64(l.Logprob)) {
			return nil, &SettingError{Setting: fmt.Sprintf("of its %d most likely tokens %d can be drawn, where the model has %d: it applies top_k or top_p in spite of what the call asks for",
				len(asked), i, p.vocabulary)}
		}
	}
	if mean, most := likelyDistance(asked, other); !(mean <= tolerance && most <= oneTolerance) {
		return nil, &SettingError{Setting: fmt.Sprintf("it has sampling defaults of its own: after the same context the log-probabilities of the same tokens differ by %.3f, and by %.3f at most, where the call does not say how to sample; "+
			"start it with --generation-config vllm, so that the model's generation_config.json sets nothing", mean, most)}
	}
	return asked, nil
}

// likelyDistance is how far the numbers of the tokens that two lists have in common lie from each other: on average, and at most. It is NaN
// where a token can be drawn by one list alone, and where the lists have nothing in common.
func likelyDistance(a, b []Likely) (mean, most float64) {
	n := 0.0
	for _, x := range a {
		for _, y := range b {
			if x.Token == y.Token {
				d := float64(x.Logprob) - float64(y.Logprob)
				mean, most, n = mean+d, math.Max(most, math.Abs(d)), n+1
			}
		}
	}
	return math.Abs(mean / n), most
}

// sumProbabilities is the probability of all tokens of a list.
func sumProbabilities(list []Likely) (sum float64) {
	for _, l := range list {
		sum += math.Exp(float64(l.Logprob))
	}
	return sum
}

// judgeTemperature refuses log-probabilities of another distribution than the sampled distribution: at temperature 2 two
// tokens are half as far apart as at 1.
func judgeTemperature(warm, other []Likely) error {
	var ones, twos []float64
	for _, x := range warm {
		for _, y := range other {
			if x.Token == y.Token {
				ones, twos = append(ones, float64(x.Logprob)), append(twos, float64(y.Logprob))
			}
		}
	}
	for _, list := range [][]float64{ones, twos} {
		for _, x := range list {
			if x > maxLogprob {
				return &SettingError{Setting: fmt.Sprintf("it sends logits (%g) for log-probabilities: start it with --logprobs-mode processed_logprobs", x)}
			}
		}
	}
	if len(ones) < 2 {
		return nil // nothing to compare; the calls at temperature 1 were alike
	}
	one, two := ones[0]-ones[len(ones)-1], twos[0]-twos[len(twos)-1]
	if one >= leastSpread && two > 0.75*one {
		return &SettingError{Setting: fmt.Sprintf("its log-probabilities are not those of the distribution it samples from: two tokens are %.3f apart at temperature 1 and %.3f at temperature %d, which is not half of it: "+
			"they are from before the temperature; start it with --logprobs-mode processed_logprobs, and SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB", one, two, hot)}
	}
	return nil
}

// probeStop refuses a server that goes on after a stop token, or leaves it out: the most likely token is drawn, and all that may be it are
// stops.
func (p *probe) probeStop(ctx context.Context, context, stops []int32) error {
	a, err := p.sampleOnce(ctx, &Query{Tokens: context, MaxTokens: stopTokens, Stop: stops})
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if len(a.Tokens) != 1 || a.Finish != FinishStop || !slices.Contains(stops, a.Tokens[0]) {
		return &SettingError{Setting: fmt.Sprintf("it does not end an answer at its first stop token: after %v, with stop_token_ids %v, it sampled %v and ended with %q; only answers that happen not to stop would be kept",
			context, stops, a.Tokens, a.Finish)}
	}
	return nil
}

// probeSalt reports whether the server keeps contexts of different salts apart, without which a call after a swap could find keys and
// values of the weights before.
func (p *probe) probeSalt(ctx context.Context) (bool, error) {
	context := make([]int32, max(min(saltContext, p.longest-stopTokens), 1))
	for i := range context {
		context[i] = int32((i*7 + 1) % p.vocabulary) //nolint:gosec // a vocabulary fits
	}
	for _, name := range []string{"-a", "-b"} {
		a, err := p.sampleOnce(ctx, &Query{Tokens: context, MaxTokens: 1, Temperature: 1, Salt: p.salt + name})
		if err != nil {
			return false, fmt.Errorf("probe: %w", err)
		}
		if name == "-b" && a.Cached > 0 {
			p.log.Warn("an inference server does not know cache_salt: its calls are cut at every swap and its cache is emptied; SGLang has it from 0.5.18 on")
			return false, nil
		}
	}
	return true, nil
}

// askLikely asks for the most likely tokens.
func (p *probe) askLikely(ctx context.Context, q *Query) ([]Likely, error) {
	a, err := p.askWhole(ctx, q)
	if n := Status(err); n >= 400 && n < 500 && n != 408 && n != 429 {
		return nil, &SettingError{Setting: fmt.Sprintf("a call with the last token of the vocabulary, %d, at temperature %g is refused: the server has another model, or does not know the call",
			p.vocabulary-1, q.Temperature), Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	if len(a.Likely) != 1 || len(a.Likely[0]) < 2 {
		return nil, fmt.Errorf("probe: %w: the most likely tokens were asked for, and did not come: %v", ErrMalformed, a.Likely)
	}
	if math.IsNaN(float64(a.Logprobs[0])) {
		return nil, &SettingError{Setting: "the token of the probe has no log-probability"}
	}
	for _, l := range a.Likely[0] {
		if l.Token < 0 || int(l.Token) >= p.vocabulary {
			return nil, &SettingError{Setting: fmt.Sprintf("token %d is among its most likely where the model has %d tokens: it has a model of another vocabulary", l.Token, p.vocabulary)}
		}
	}
	return a.Likely[0], nil
}

// askWhole makes a call of the probe that nothing but its length ends.
func (p *probe) askWhole(ctx context.Context, q *Query) (*Answer, error) {
	a, err := p.sampleOnce(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(a.Tokens) != q.MaxTokens || a.Finish != FinishLength {
		return nil, fmt.Errorf("%w: %d tokens were asked for without a stop, and %d came with finish %q: %s", ErrMalformed, q.MaxTokens, len(a.Tokens), a.Finish, a.Message)
	}
	p.spans = len(a.Spans) > 0
	return a, nil
}

// sampleOnce makes a call of the probe.
func (p *probe) sampleOnce(ctx context.Context, q *Query) (a *Answer, err error) {
	q.ID = p.id()
	if q.Salt == "" {
		q.Salt = p.salt
	}
	err = limitTime(ctx, p.timeout, "stall_timeout", func(ctx context.Context) (err error) {
		a, err = p.speaker.Generate(ctx, q, func() {})
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, a.checkShape(q.MaxTokens)
}
