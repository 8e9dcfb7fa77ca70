package gpu

import (
	"fmt"
	"strings"
)

// Memory is what something takes, by part, the largest uses apart.
type Memory []MemoryPart

// MemoryPart is one use of memory.
type MemoryPart struct {
	// Name is the use in a word or two, such as "gradients".
	Name string `json:"name"`
	// Bytes it takes.
	Bytes int64 `json:"bytes"`
}

// Total is the sum of the parts, in bytes.
func (m Memory) Total() int64 {
	var n int64
	for _, p := range m {
		n += p.Bytes
	}
	return n
}

// Text is the sum and the parts: "11.6 GB: weights 2.0, gradients 2.0, moments 3.9, activations 3.7". A part below a hundredth of
// the whole is counted and not named.
func (m Memory) Text() string {
	total := m.Total()
	unit, name := 1e9, "GB"
	if total < 1e9 {
		unit, name = 1e6, "MB"
	}
	var parts []string
	for _, p := range m {
		if p.Bytes*100 >= total {
			parts = append(parts, fmt.Sprintf("%s %.1f", p.Name, float64(p.Bytes)/unit))
		}
	}
	return fmt.Sprintf("%.1f %s: %s", float64(total)/unit, name, strings.Join(parts, ", "))
}

// MemoryEstimator is a [Backend] that can say beforehand what its engines and decoders will take. What it says is computed from
// shapes, as the code allocates; it leaves out what does not grow with the model.
type MemoryEstimator interface {
	// TrainingMemory is what an engine takes whose parts have at most so many tokens.
	TrainingMemory(cfg Config, tokens int) Memory
	// EvaluatingMemory is what an engine takes that only imports and evaluates, as a frozen reference policy does.
	EvaluatingMemory(cfg Config, tokens int) Memory
	// DecodingMemory is what a decoder takes whose caches hold so many tokens in all. o.DType is what the numbers of its matrices
	// are; "" is Float32. swapping counts the room for the next
	// version beside the one in use.
	DecodingMemory(cfg Config, o DecoderOptions, tokens int64, swapping bool) Memory
}

// DeviceMemory is a [MemoryEstimator] whose engines may lie in the memory of a device.
type DeviceMemory interface {
	// OnDevice says whether they do: what they take is then not the machine's own.
	OnDevice() bool
}
