package streambench

import (
	"slices"
	"time"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
)

// CodecReport is the cost of encoding and decoding, in copies of the trajectory's arrays as they lie in memory.
type CodecReport struct {
	// EncodeReused and DecodeReused keep their buffers, DecodeFresh makes the trajectory anew.
	EncodeReused harness.Spread `json:"encode_reused"`
	DecodeReused harness.Spread `json:"decode_reused"`
	DecodeFresh  harness.Spread `json:"decode_fresh"`
}

// codecBlock is the bytes of copies, and of the other, that follow each other in a turn.
const codecBlock = 8 << 20

// measureCodec returns the trajectory's bytes on the wire too.
func measureCodec(t *schemas.Trajectory, rounds int) (int, CodecReport, error) {
	data, err := schemas.Marshal(t)
	if err != nil {
		return 0, CodecReport{}, err
	}
	var e schemas.Encoder
	var d schemas.Decoder
	var into schemas.Trajectory
	ops := []func() error{
		func() error { _, err := e.Encode(t); return err },
		func() error { return d.Decode(data, &into) },
		func() error { return schemas.Unmarshal(data, new(schemas.Trajectory)) },
	}
	from, to := t.Segments[0], cloneSegment(t.Segments[0])
	block := codecBlock/len(data) + 1
	ratios := make([][]float64, len(ops))
	for range 4 * rounds {
		for i, op := range ops {
			begin := time.Now()
			for range block {
				copy(to.Tokens, from.Tokens)
				copy(to.ActionMask, from.ActionMask)
				copy(to.Logprobs, from.Logprobs)
				copy(to.Versions, from.Versions)
			}
			middle := time.Now()
			for range block {
				if err := op(); err != nil {
					return 0, CodecReport{}, err
				}
			}
			ratios[i] = append(ratios[i], time.Since(middle).Seconds()/middle.Sub(begin).Seconds())
		}
	}
	return len(data), CodecReport{EncodeReused: harness.SpreadOf(ratios[0]), DecodeReused: harness.SpreadOf(ratios[1]), DecodeFresh: harness.SpreadOf(ratios[2])}, nil
}

func cloneSegment(s schemas.Segment) schemas.Segment {
	s.Tokens, s.ActionMask, s.Logprobs, s.Versions = slices.Clone(s.Tokens), slices.Clone(s.ActionMask), slices.Clone(s.Logprobs), slices.Clone(s.Versions)
	return s
}
