package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weir-rl/weir/gpu"
)

// SettingError is a server whose settings spoil what it samples: it is refused, and no retry helps.
type SettingError struct {
	// Setting is what is wrong, and what to do.
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

// Unwrap is what showed it.
func (e *SettingError) Unwrap() error { return e.Err }

// probe finds out by a few calls whether a server samples from the whole softmax at the temperature that it is asked for, and
// says that distribution's log-probabilities.
//
// At a temperature of 1000 the distribution is flat: every token has a log-probability of -log V, V being the size of the
// vocabulary, whatever the weights are. Log-probabilities from before the temperature are far from that and differ from token
// to token; under top_k or top_p fewer tokens are drawn from, so that each has more; another vocabulary has another V. The
// same is asked once with the sampling fields and once without: then the server's own defaults are in force. A default of
// the temperature, min_p or a penalty shows in the most likely token's log-probability at temperature 1.
type probe struct {
	speaker    Speaker
	vocabulary int
	salt       string
	timeout    time.Duration
	spans      bool
	asked      int
}

const (
	// flat is the temperature at which all tokens are as likely.
	flat = gpu.MaxTemperature
	// flatTokens is how many tokens are drawn: their mean is what counts.
	flatTokens = 16
	// flatTolerance, in nats, lets 1 % of the vocabulary be missing: some servers leave padding out.
	flatTolerance = 0.01
	// flatSpread, in nats, is more than a temperature of 1000 leaves of the differences between logits.
	flatSpread = 0.25
	// sharpTolerance, in nats, is above the noise of bfloat16 between two batches.
	sharpTolerance = 0.1
)

// run returns whether answers say by spans which weights sampled them; a [SettingError] names what is wrong.
func (p *probe) run(ctx context.Context) (spans bool, err error) {
	context := []int32{0, int32(p.vocabulary / 2), int32(p.vocabulary - 1)} //nolint:gosec // a vocabulary fits
	for _, bare := range []bool{false, true} {
		a, err := p.ask(ctx, &Query{Tokens: context, MaxTokens: flatTokens, Temperature: flat, Bare: bare})
		if n := Status(err); n >= 400 && n < 500 && n != 408 && n != 429 {
			return false, &SettingError{Setting: fmt.Sprintf("a call with the last token of the vocabulary, %d, at temperature %g is refused: the server has another model, or does not know the call",
				p.vocabulary-1, float64(flat)), Err: err}
		}
		if err != nil {
			return false, fmt.Errorf("probe: %w", err)
		}
		if err := p.judgeFlat(a, bare); err != nil {
			return false, err
		}
	}
	return p.spans, p.sharp(ctx, context)
}

// judgeFlat refuses log-probabilities that are not those of a flat distribution over the vocabulary.
func (p *probe) judgeFlat(a *Answer, bare bool) error {
	low, high, sum := math.Inf(1), math.Inf(-1), 0.0
	for i, lp := range a.Logprobs {
		x := float64(lp)
		if math.IsNaN(x) {
			return &SettingError{Setting: fmt.Sprintf("token %d of the probe has no log-probability", i)}
		}
		low, high, sum = min(low, x), max(high, x), sum+x
	}
	mean := sum / float64(len(a.Logprobs))
	size := math.Exp(-mean)
	whose := "in spite of what the call asks for"
	if bare {
		whose = "by default: start it with --generation-config vllm, so that the model's generation_config.json sets nothing"
	}
	switch {
	case high > 1e-3:
		return &SettingError{Setting: fmt.Sprintf("it sends logits (%g) for log-probabilities: start it with --logprobs-mode processed_logprobs", high)}
	case high-low > flatSpread:
		return &SettingError{Setting: fmt.Sprintf("its log-probabilities, %.3f to %.3f, are not those of the distribution it samples from, which is flat at temperature %g: "+
			"they are from before the temperature; start it with --logprobs-mode processed_logprobs, and SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB", low, high, float64(flat))}
	case math.Abs(mean+math.Log(float64(p.vocabulary))) <= flatTolerance:
		return nil
	case size < float64(p.vocabulary):
		return &SettingError{Setting: fmt.Sprintf("it draws from %.0f tokens where the model has %d: it applies top_k or top_p %s; or it has a model of another vocabulary", size, p.vocabulary, whose)}
	default:
		return &SettingError{Setting: fmt.Sprintf("it draws from %.0f tokens where the model has %d: it has a model of another vocabulary", size, p.vocabulary)}
	}
}

// sharp refuses defaults that show at temperature 1: its own temperature, min_p, penalties. The context grows by the most likely
// token, so that a penalty on repetition meets what is likely.
func (p *probe) sharp(ctx context.Context, context []int32) error {
	for range sharpRounds {
		asked, err := p.likely(ctx, &Query{Tokens: context, MaxTokens: 1, Temperature: 1, Top: true})
		if err != nil {
			return err
		}
		bare, err := p.likely(ctx, &Query{Tokens: context, MaxTokens: 1, Top: true, Bare: true})
		if err != nil {
			return err
		}
		if d := math.Abs(float64(asked.Top[0] - bare.Top[0])); !(d <= sharpTolerance) {
			return &SettingError{Setting: fmt.Sprintf("it has sampling defaults of its own: the most likely token's log-probability is %.3f as asked for and %.3f by default; "+
				"start it with --generation-config vllm, so that the model's generation_config.json sets nothing", asked.Top[0], bare.Top[0])}
		}
		context = append(slices.Clone(context), asked.TopTokens[0])
	}
	return nil
}

// sharpRounds is how many contexts are compared.
const sharpRounds = 4

// likely asks for the most likely token.
func (p *probe) likely(ctx context.Context, q *Query) (*Answer, error) {
	a, err := p.ask(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	if len(a.TopTokens) != 1 || len(a.Top) != 1 {
		return nil, fmt.Errorf("probe: %w: the most likely token was asked for, and %d came", ErrMalformed, len(a.TopTokens))
	}
	if token := a.TopTokens[0]; token < 0 || int(token) >= p.vocabulary {
		return nil, &SettingError{Setting: fmt.Sprintf("its most likely token is %d where the model has %d tokens: it has a model of another vocabulary", token, p.vocabulary)}
	}
	return a, nil
}

// ask makes one call of the probe.
func (p *probe) ask(ctx context.Context, q *Query) (a *Answer, err error) {
	p.asked++
	q.ID, q.Salt, q.Seed = fmt.Sprintf("%s-%d", p.salt, p.asked), p.salt, uint64(p.asked) //nolint:gosec // a small count
	err = within(ctx, p.timeout, "stall_timeout", func(ctx context.Context) (err error) {
		a, err = p.speaker.Generate(ctx, q, func() {})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := a.whole(q.MaxTokens); err != nil {
		return nil, err
	}
	if len(a.Tokens) != q.MaxTokens || a.Finish != FinishLength {
		return nil, fmt.Errorf("%w: %d tokens were asked for without a stop, and %d came with finish %q: %s", ErrMalformed, q.MaxTokens, len(a.Tokens), a.Finish, a.Message)
	}
	p.spans = len(a.Spans) > 0
	return a, nil
}

// sameModel refuses a server whose model folder can be read here and is another model's.
func sameModel(path string, want gpu.Config) error {
	if !filepath.IsAbs(path) {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(path, gpu.ConfigFile))
	if err != nil {
		return nil //nolint:nilerr // it lies on another machine, or is gone: the probe and the load tell
	}
	var have gpu.Config
	if json.Unmarshal(data, &have) != nil {
		have = gpu.Config{}
	}
	var errs []error
	for _, x := range []struct {
		key        string
		have, want int
	}{
		{"vocab_size", have.VocabSize, want.VocabSize},
		{"hidden_size", have.HiddenSize, want.HiddenSize},
		{"num_hidden_layers", have.NumLayers, want.NumLayers},
		{"num_attention_heads", have.NumHeads, want.NumHeads},
	} {
		if x.have != x.want {
			errs = append(errs, fmt.Errorf("%s is %d, the run's model has %d", x.key, x.have, x.want))
		}
	}
	if errs != nil {
		return &SettingError{Setting: fmt.Sprintf("it serves another model, %s: start it with the run's model", path), Err: errors.Join(errs...)}
	}
	return nil
}
