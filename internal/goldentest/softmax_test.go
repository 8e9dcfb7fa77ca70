package goldentest

import "math"

// The softmax in float64, which the engines have in float32 within their heads (gpu/native: head.go): this package's own
// code, by which the cases go from logits to the log-probabilities and entropies that the losses read, and back.

// categorical is the log-probability of label under softmax(logits), and that distribution's entropy, in nats:
//
//	log p = logit[label] - logsumexp(logits),  H = logsumexp(logits) - sum p logit
//
// A logit of -Inf is a token that cannot be sampled.
func categorical(logits []float64, label int) (logprob, entropy float64) {
	lse := logSumExp(logits)
	expected := 0.0
	for _, x := range logits {
		if p := math.Exp(x - lse); p > 0 {
			expected += p * x
		}
	}
	return logits[label] - lse, lse - expected
}

// categoricalGrad writes d/d logits of a log-probability's and an entropy's gradients, both given:
//
//	dL/dx_k = g ([k = label] - p_k) - h p_k (log p_k + H)
func categoricalGrad(logits []float64, label int, gradLogprob, gradEntropy float64, out []float64) {
	lse := logSumExp(logits)
	_, entropy := categorical(logits, label)
	for k, x := range logits {
		out[k] = 0
		if p := math.Exp(x - lse); p > 0 {
			out[k] = -gradLogprob*p - gradEntropy*p*(x-lse+entropy)
		}
	}
	out[label] += gradLogprob
}

// logSumExp is log(sum(exp(x))), without overflow.
func logSumExp(x []float64) float64 {
	largest := math.Inf(-1)
	for _, v := range x {
		largest = max(largest, v)
	}
	if math.IsInf(largest, 0) {
		return largest
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(v - largest)
	}
	return largest + math.Log(sum)
}
