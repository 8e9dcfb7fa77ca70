package archive

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/weir-rl/weir/trainer/learner"
)

// Numbers are a step's results for the tokens of a segment. Each array has an entry for each token of the segment, 0 where no policy
// sampled it.
type Numbers struct {
	// Segment is the segment's index.
	Segment int
	// Advantages are the loss's input. Start are the log-probabilities under the policy at the step's start, Last under the policy that
	// last trained on the token.
	Advantages, Start, Last []float32
}

// appendNumbers appends the numbers of a trajectory's rows; segments has the index of each row's segment.
func appendNumbers(to []byte, t *learner.Tokens, rows []int, segments []int) []byte {
	to = binary.LittleEndian.AppendUint32(to, uint32(len(rows)))
	for i, row := range rows {
		begin, end := t.Rows.Offsets[row], t.Rows.Offsets[row+1]
		to = binary.LittleEndian.AppendUint32(to, uint32(segments[i]))
		to = binary.LittleEndian.AppendUint32(to, uint32(end-begin))
		for _, x := range [][]float64{t.Advantages, t.Start, t.Last} {
			for k := begin; k < end; k++ {
				v := float32(0)
				if t.Rows.Mask[k] != 0 && k < len(x) {
					v = float32(finiteOrZero(x[k]))
				}
				to = binary.LittleEndian.AppendUint32(to, math.Float32bits(v))
			}
		}
	}
	return to
}

var errNumbers = errors.New("the archive's numbers are cut short")

// readNumbers is the inverse.
func readNumbers(data []byte) ([]Numbers, error) {
	next := func() (uint32, bool) {
		if len(data) < 4 {
			return 0, false
		}
		v := binary.LittleEndian.Uint32(data)
		data = data[4:]
		return v, true
	}
	rows, ok := next()
	if !ok || int(rows) > len(data)/8 {
		return nil, errNumbers
	}
	out := make([]Numbers, 0, rows)
	for range rows {
		segment, _ := next()
		n, ok := next()
		if !ok || uint64(n)*12 > uint64(len(data)) {
			return nil, errNumbers
		}
		of := Numbers{Segment: int(segment)}
		for _, to := range []*[]float32{&of.Advantages, &of.Start, &of.Last} {
			*to = make([]float32, n)
			for k := range *to {
				bits, _ := next()
				(*to)[k] = math.Float32frombits(bits)
			}
		}
		out = append(out, of)
	}
	if len(data) > 0 {
		return nil, errNumbers
	}
	return out, nil
}

// finiteOrZero returns x, 0 for NaN and the infinities, which JSON lacks.
func finiteOrZero(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// clipText returns the beginning of a text.
func clipText(text string, most int) string {
	if len(text) > most {
		text = text[:most]
		for len(text) > 0 && !utf8.ValidString(text[max(0, len(text)-utf8.UTFMax):]) {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return strings.ToValidUTF8(text, "?")
}
