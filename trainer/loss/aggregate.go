package loss

import (
	"math"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// How token losses become a single number. Denominators are taken over the whole mini-batch (Counts).
const (
	TokenMean           = "token-mean"              // sum / tokens: long rows weigh more
	SeqMeanTokenSum     = "seq-mean-token-sum"      // sum / rows
	SeqMeanTokenMean    = "seq-mean-token-mean"     // mean over rows of the row's mean
	SeqMeanTokenSumNorm = "seq-mean-token-sum-norm" // sum / a fixed length (Dr. GRPO)
)

// Aggregation is how token losses become a single number.
type Aggregation struct {
	// Mode is token-mean, seq-mean-token-sum, seq-mean-token-mean or seq-mean-token-sum-norm.
	Mode string `koanf:"mode" default:"token-mean" oneof:"token-mean seq-mean-token-sum seq-mean-token-mean seq-mean-token-sum-norm"`
	// Length is the fixed length of seq-mean-token-sum-norm, in tokens, and above 0 with that mode.
	Length float64 `koanf:"length" min:"0"`

	// The fields from here on have no key, and in a run are zero: see Shared.

	// CountEmptyRows counts rows without an action token in the mean over rows (Agent-R1 legacy): rows that a selection silenced, and with
	// drop_rejected rows that lost every token. Defaults to false.
	CountEmptyRows bool `koanf:"-"`
	// TokenEpsilon is added to the number of tokens in token-mean (Agent-R1 legacy: 1e-8). Defaults to 0.
	TokenEpsilon float64 `koanf:"-"`
	// LengthEpsilon is added to a row's length in seq-mean-token-mean (verl: 1e-8). Defaults to 0.
	LengthEpsilon float64 `koanf:"-"`
	// EmptyNaN makes the mean over nothing NaN, as verl's is, where the default is 0.
	EmptyNaN bool `koanf:"-"`
}

// Validate reports every fault.
func (a Aggregation) Validate() error {
	return check.All(
		check.Fields(a),
		check.That(a.Mode != SeqMeanTokenSumNorm || a.Length != 0, "length", "%v: must be positive with mode %s", a.Length, SeqMeanTokenSumNorm),
		check.NotNegative("TokenEpsilon", a.TokenEpsilon),
		check.NotNegative("LengthEpsilon", a.LengthEpsilon),
	)
}

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (a Aggregation) Unread(key string) string {
	if key == "length" && a.Mode != SeqMeanTokenSumNorm {
		return "mode is " + a.Mode
	}
	return ""
}

// denominators are an aggregation made ready for a batch.
type denominators struct {
	a            Aggregation
	tokens, rows float64
}

// withCounts returns the denominators of the counts c; a zero count is taken from the batch itself.
func (a Aggregation) withCounts(c Counts, offsets []int, mask []uint8) denominators {
	c = c.fillZeros(offsets, mask)
	if a.CountEmptyRows {
		c.Rows += c.Empty
	}
	return denominators{a: a, tokens: float64(c.Tokens), rows: float64(c.Rows)}
}

// rowScale returns the factor of each token loss in a row of n action tokens. A mean over nothing is 0/0. A mean over nothing is 0/0.
func (d denominators) rowScale(n int) float64 {
	switch d.a.Mode {
	case SeqMeanTokenSum:
		return 1 / d.rows
	case SeqMeanTokenMean:
		return 1 / (d.rows * (float64(n) + d.a.LengthEpsilon))
	case SeqMeanTokenSumNorm:
		return 1 / d.a.Length
	default:
		return 1 / (d.tokens + d.a.TokenEpsilon)
	}
}

// emptyRowLoss returns the loss of a row without counted tokens, whose mean is 0/0: 0, or NaN with EmptyNaN; then its gradient is NaN too
// where such rows count. nothing, or with EmptyNaN NaN, for its gradient too where such rows count.
func (d denominators) emptyRowLoss(grad []float64) float64 {
	if !d.a.EmptyNaN || stats.Finite(0*d.rowScale(0)) {
		return 0
	}
	if d.a.CountEmptyRows {
		for t := range grad {
			grad[t] = math.NaN()
		}
	}
	return math.NaN()
}
