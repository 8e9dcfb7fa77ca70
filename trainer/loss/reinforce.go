package loss

// reinforce is the score-function loss (Williams 1992): its gradient is the policy gradient. With weights
// min(pi/mu, cap) it is truncated importance sampling; with weights, rejection rules and tau it is prime-rl's masked
// importance loss, whose KL stands within the weight, without gradient (Kimi-K2):
//
//	L_t = -w_t (A - tau log(pi/old)) log pi
type reinforce struct{ tau float64 }

func newReinforceLoss(k *Reinforce) algorithm { return reinforce{tau: max(0, k.KLTau)} }

func (reinforce) metricNames() []string { return []string{"approx_kl"} }

func (p reinforce) rowLoss(r *row, tally *tally) float64 {
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		w, d := r.tokenWeight(t), r.logprobs[t]-r.old[t]
		a := r.advantages[t] - p.tau*d
		loss := -w * a * r.logprobs[t]
		total += loss
		r.grad[t] = -r.scale * w * a
		tally.addValue(0, -d)
		r.detail.setToken(t, loss, 1, w, clip{})
	}
	return r.scale * total
}

// crossEntropy imitates the sampled tokens, whatever their advantage (supervised fine-tuning):
//
//	L_t = -w_t log pi
type crossEntropy struct{}

func newCrossEntropy(*CrossEntropy) algorithm { return crossEntropy{} }

func (crossEntropy) metricNames() []string { return []string{"nll"} }

func (crossEntropy) rowLoss(r *row, tally *tally) float64 {
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		w := r.tokenWeight(t)
		total -= w * r.logprobs[t]
		r.grad[t] = -r.scale * w
		tally.addValue(0, -r.logprobs[t])
		r.detail.setToken(t, -w*r.logprobs[t], 1, w, clip{})
	}
	return r.scale * total
}
