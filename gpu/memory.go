package gpu

import (
	"fmt"
	"strings"
)

// Memory is a need of memory, by part, the largest uses apart.
type Memory []MemoryPart

// MemoryPart is a single use of memory.
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

// MemoryEstimator is a [Backend] that can estimate the memory of its engines and decoders beforehand. The estimate is computed
// from shapes, as the code allocates; it leaves out memory that does not grow with the model.
type MemoryEstimator interface {
	// TrainingMemory is the need of an engine whose parts have at most this number of tokens.
	TrainingMemory(cfg Config, tokens int) Memory
	// EvaluatingMemory is the need of an engine that only imports and evaluates, as a frozen reference policy does.
	EvaluatingMemory(cfg Config, tokens int) Memory
	// DecodingMemory is the need of a decoder whose caches hold this number of tokens in all. o.DType is the type of its
	// matrices; "" is Float32. swapping adds the room for the next version beside the current version.
	DecodingMemory(cfg Config, o DecoderOptions, tokens int64, swapping bool) Memory
}

// DeviceMemory is a [MemoryEstimator] whose engines may lie in the memory of a device.
type DeviceMemory interface {
	// OnDevice reports whether they do: their memory is then the device's and not the machine's.
	OnDevice() bool
}
