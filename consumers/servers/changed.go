package servers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

const (
	// comparedNumbers is how many numbers of two tensors are compared at a time.
	comparedNumbers = 1 << 16
	// severalNumbers is how many numbers of a tensor a load must change before the tensor's checksum is held against the server, together
	// with the checksums of at least severalTensors.
	severalNumbers, severalTensors = 8, 4
	// manyNumbers is how many changed numbers make the checksum of a single tensor count: a server may keep one tensor of all.
	manyNumbers = 64
	// leastShare: at least one tensor in leastShare has many changed numbers where equal log-probabilities show that nothing was loaded.
	leastShare = 4
)

// change is a tensor that two versions have in common and that differs between them.
type change struct {
	name string
	// numbers counts, up to manyNumbers, the numbers that differ both in bfloat16 and in float16. The middle of two bfloat16 numbers is a float16
	// number, so that numbers on either side of it, which differ in bfloat16, may be equal in float16: a server's type is not known, and a
	// number that differs in one type alone shows nothing.
	numbers int
}

// changedTensors are the tensors that two folders have in common and that differ, and how many tensors were compared.
func changedTensors(ctx context.Context, before, after string) (changes []change, compared int, err error) {
	a, err := safetensors.OpenFolder(before, gpu.WeightsFile)
	if err != nil {
		return nil, 0, fmt.Errorf("open the weights of the version before: %w", err)
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := safetensors.OpenFolder(after, gpu.WeightsFile)
	if err != nil {
		return nil, 0, fmt.Errorf("open the weights of the version: %w", err)
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	x, y := make([]float32, comparedNumbers), make([]float32, comparedNumbers)
	for _, t := range b.Tensors() {
		if !a.Has(t.Name) || t.Name == gpu.ValueHeadTensor {
			continue
		}
		compared++
		numbers, differs, err := compareTensor(ctx, a, b, t, x, y)
		if err != nil {
			return nil, 0, err
		}
		if differs {
			changes = append(changes, change{name: t.Name, numbers: numbers})
		}
	}
	return changes, compared, nil
}

// compareTensor counts the changed numbers of a tensor of two folders, up to manyNumbers, and reports whether any differs in float32. x and y
// are room for numbers.
func compareTensor(ctx context.Context, a, b *safetensors.Folder, t gpu.Tensor, x, y []float32) (numbers int, differs bool, err error) {
	total := 1
	for _, n := range t.Shape {
		total *= n
	}
	for at := 0; at < total && numbers < manyNumbers; at += len(x) {
		n := min(len(x), total-at)
		if err := errors.Join(a.ReadPart(ctx, t.Name, at, x[:n]), b.ReadPart(ctx, t.Name, at, y[:n])); err != nil {
			return 0, false, fmt.Errorf("compare two versions: %w", err)
		}
		more, differ := countChanged(x[:n], y[:n])
		numbers, differs = numbers+more, differs || differ
	}
	return min(numbers, manyNumbers), differs, nil
}

// countChanged counts the numbers that differ both in bfloat16 and in float16, up to manyNumbers, and reports whether any differs in float32.
func countChanged(x, y []float32) (numbers int, differs bool) {
	for i, v := range x {
		if v == y[i] || math.IsNaN(float64(y[i])) {
			continue
		}
		differs = true
		if safetensors.RoundBF16(v) == safetensors.RoundBF16(y[i]) || safetensors.RoundF16(v) == safetensors.RoundF16(y[i]) {
			continue
		}
		if numbers++; numbers == manyNumbers {
			break
		}
	}
	return numbers, differs
}

// match is how a server's checksums went along with the changes of a load.
type match struct {
	// matched counts the changed tensors that the server has; evident counts those of them with several changed numbers.
	matched, evident int
	// unmoved are the evident tensors whose checksums are the same on every rank that has them.
	unmoved []string
	// decisive is whether an unmoved tensor has many changed numbers.
	decisive bool
}

// isStale reports whether the checksums show old tensors: a tensor with many changed numbers is the same, or all tensors with several are.
func (m match) isStale() bool {
	return m.decisive || m.evident >= severalTensors && len(m.unmoved) == m.evident
}

// matchTensors compares the checksums of changed tensors from before and after a load.
func matchTensors(changes []change, before, now map[string]string) (m match) {
	moved := map[string]bool{} // by tensor, whether a rank has another checksum than before
	for key, sum := range now {
		name := key[strings.LastIndex(key, ":")+1:]
		moved[name] = moved[name] || before[key] != sum
	}
	for _, c := range changes {
		is, there := moved[fusedName(c.name)]
		if !there {
			continue
		}
		m.matched++
		if c.numbers < severalNumbers {
			continue
		}
		if m.evident++; !is {
			m.unmoved = append(m.unmoved, c.name)
			m.decisive = m.decisive || c.numbers >= manyNumbers
		}
	}
	return m
}
