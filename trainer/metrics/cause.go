package metrics

import "fmt"

// Cause is the most likely cause of the difference between sampler and trainer.
type Cause int

// The causes.
const (
	CauseNone Cause = iota
	CauseTemperature
	CauseTruncation
	CauseArithmetic
	CauseWeights
)

// Mismatch describes the difference where sampler and trainer differ by too much in a step, and names the setting to look at; "" where they
// do not.
func Mismatch(v map[string]float64) string {
	what := ""
	switch Cause(MismatchCause.In(v)) {
	case CauseNone:
		return ""
	case CauseTemperature:
		what = "as if at another temperature: the sampler's log-probabilities are from before it (vLLM: --logprobs-mode processed_logprobs), or it has a default of its own"
	case CauseTruncation:
		what = "as under top_p, top_k or min_p: the sampler has sampling defaults of its own (vLLM: --generation-config vllm)"
	case CauseArithmetic:
		what = "as by other arithmetic: look at trainer.publish.dtype, the sampler's dtype and quantization, and inference.swap"
	case CauseWeights:
		what = "as with other weights: the sampler may not have the version that it names, or applies a penalty"
	}
	return fmt.Sprintf("sampler and trainer differ at tokens of one version by %.3f nats on average (at most %.1f, effective sample size %.2f), %s",
		MismatchMean.In(v), MismatchMax.In(v), MismatchESS.In(v), what)
}
