package loss

import "math"

// ppo is the clipped surrogate (arXiv 1707.06347, equation 7), with a bound of its own for ratios above 1
// (DAPO, arXiv 2503.14476, equation 10) and the dual clip for negative advantages (arXiv 1912.09729, equation 5):
//
//	L_t = max(-A r, -A clip(r, 1-low, 1+high));  if A < 0: min(L_t, c |A|)
type ppo struct {
	surrogate
	band band
	dual float64
}

func newPPOLoss(k *PPO) algorithm {
	p := &ppo{surrogate: newSurrogate(k.Surrogate), band: newClipBand(k.ClipLow, k.ClipHigh), dual: k.DualClip}
	p.token = p.clippedLoss
	return p
}

// newGSPOLoss is PPO on the row's ratio, whose logarithm is bounded from above alone.
func newGSPOLoss(k *PPO) algorithm {
	p := &ppo{surrogate: newSurrogate(k.Surrogate), band: newClipBand(k.ClipLow, k.ClipHigh), dual: k.DualClip}
	p.logLow = math.Inf(-1)
	p.token = p.clippedLoss
	return p
}

func (p *ppo) clippedLoss(_, ratio, dr, a float64) (loss, slope float64, flags clip) {
	loss, slope = -a*ratio, -a*dr
	if other := -a * p.band.clipRatio(ratio); other > loss {
		loss, slope, flags.clipped = other, 0, true
	}
	if p.dual > 0 && a < 0 {
		switch limit := -a * p.dual; {
		case loss > limit:
			loss, slope, flags.dual = limit, 0, true
		case loss == limit: // a tie: autograd's min shares the gradient
			slope /= 2
		}
	}
	return loss, slope, flags
}

// sapo replaces the clip by a soft gate (arXiv 2511.20347, equation 5), steeper for negative advantages:
//
//	L_t = -A sigmoid(tau (r - 1)) 4 / tau
type sapo struct {
	surrogate
	positive, negative float64
}

func newSAPOLoss(k *SAPO) algorithm {
	s := &sapo{surrogate: newSurrogate(k.Surrogate), positive: k.TauPositive, negative: k.TauNegative}
	s.token = s.gatedLoss
	return s
}

func (s *sapo) gatedLoss(_, ratio, dr, a float64) (loss, slope float64, flags clip) {
	gate, gateSlope := SoftGate(ratio, a, s.positive, s.negative)
	return -a * gate, -a * gateSlope * dr, flags
}

// SoftGate is sigmoid(tau (r - 1)) 4 / tau and its derivative by the ratio, with tau for the advantage's sign.
func SoftGate(ratio, advantage, positive, negative float64) (gate, slope float64) {
	tau := negative
	if advantage > 0 {
		tau = positive
	}
	s := 1 / (1 + math.Exp(-tau*(ratio-1)))
	return s * 4 / tau, 4 * s * (1 - s)
}

// cispo bounds the weight of the score function instead of dropping tokens (MiniMax-M1, arXiv 2506.13585, equation
// 4). The weight has no gradient:
//
//	L_t = -clip(r, 1-low, 1+high) A log pi
type cispo struct {
	surrogate
	band band
}

func newCISPOLoss(k *CISPO) algorithm {
	c := &cispo{surrogate: newSurrogate(k.Surrogate), band: newClipBand(k.ClipLow, k.ClipHigh)}
	c.token = c.weightedScore
	return c
}

func (c *cispo) weightedScore(lp, ratio, _, a float64) (loss, slope float64, flags clip) {
	w := c.band.clipRatio(ratio)
	flags.clipped = w != ratio
	return -w * a * lp, -w * a, flags
}
