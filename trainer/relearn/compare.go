package relearn

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Outcome compares a step as the run made it with the same step learnt again.
type Outcome struct {
	Step int64
	// Was is the run's; nil where its record does not have it. Now is the other.
	Was *checkpoint.Result
	Now checkpoint.Result
	// Files are the names of the files of tensors that differ, sorted, and Numbers the numbers.
	Files   []string
	Numbers []Difference
}

// Difference is a number that came out otherwise. A number that one side lacks is NaN there.
type Difference struct {
	Key      string
	Was, Now float64
}

// Relative is the difference in relation to the larger of the two in size; 1 where either is missing.
func (d Difference) Relative() float64 {
	if math.IsNaN(d.Was) || math.IsNaN(d.Now) {
		return 1
	}
	return math.Abs(d.Now-d.Was) / max(math.Abs(d.Was), math.Abs(d.Now))
}

// Compare compares a step's record with the result of the same batch learnt again.
func Compare(r *checkpoint.Record, now checkpoint.Result) *Outcome {
	o := &Outcome{Step: r.Step, Was: r.Result, Now: now}
	if r.Result == nil {
		return o
	}
	for _, name := range unionOfKeys(r.Result.Files, now.Files) {
		if len(r.Result.Files) > 0 && r.Result.Files[name] != now.Files[name] {
			o.Files = append(o.Files, name)
		}
	}
	number := func(of map[string]float64, key string) float64 {
		if x, ok := of[key]; ok {
			return x
		}
		return math.NaN()
	}
	for _, key := range unionOfKeys(r.Result.Numbers, now.Numbers) {
		was, x := number(r.Result.Numbers, key), number(now.Numbers, key)
		if math.Float64bits(was) != math.Float64bits(x) {
			o.Numbers = append(o.Numbers, Difference{key, was, x})
		}
	}
	return o
}

func unionOfKeys[T any](a, b map[string]T) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]T{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// ComparesWeights reports whether weights were compared, and not the numbers alone.
func (o *Outcome) ComparesWeights() bool { return o.Was != nil && len(o.Was.Files) > 0 }

// Equal reports whether the step came out equal to the bit.
func (o *Outcome) Equal() bool { return o.Was != nil && len(o.Files) == 0 && len(o.Numbers) == 0 }

// Weights names the weights that came out, of the policy or of its adapter: the beginning of the hash of their first file.
func (o *Outcome) Weights() string {
	hash := ""
	for _, name := range slices.Sorted(maps.Keys(o.Now.Files)) {
		if strings.HasPrefix(name, "model") || name == gpu.AdapterFile {
			hash = o.Now.Files[name]
			break
		}
	}
	return hash[:min(len(hash), 12)]
}

// Largest is the number that differs most in relation to its size; zero where none differs.
func (o *Outcome) Largest() (out Difference) {
	for _, d := range o.Numbers {
		if out.Key == "" || d.Relative() > out.Relative() {
			out = d
		}
	}
	return out
}
