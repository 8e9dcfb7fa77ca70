package goldentest

import (
	"fmt"
	"math"
	"slices"
)

// number reads a JSON number, one of the three strings for those that are not finite, or a bool.
func number(v any) float64 {
	switch x := v.(type) {
	case float64:
		return x
	case bool:
		if x {
			return 1
		}
		return 0
	case string:
		switch x {
		case "NaN":
			return math.NaN()
		case "Infinity":
			return math.Inf(1)
		case "-Infinity":
			return math.Inf(-1)
		}
	}
	panic(fmt.Sprintf("not a number: %v", v))
}

// vector reads a list of numbers; matrix a list of those. A missing key is nil.
func vector(v any) []float64 {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	out := make([]float64, len(list))
	for i, x := range list {
		out[i] = number(x)
	}
	return out
}

func matrix(v any) [][]float64 {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	out := make([][]float64, len(list))
	for i, x := range list {
		out[i] = vector(x)
	}
	return out
}

func texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	out := make([]string, len(list))
	for i, x := range list {
		out[i], _ = x.(string)
	}
	return out
}

// ids numbers a list of ints or strings by value.
func ids(v any) []int {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	var seen []any
	out := make([]int, len(list))
	for i, x := range list {
		k := slices.Index(seen, x)
		if k < 0 {
			k = len(seen)
			seen = append(seen, x)
		}
		out[i] = k
	}
	return out
}

func ints(v any) []int {
	var out []int
	for _, x := range vector(v) {
		out = append(out, int(x))
	}
	return out
}

// packed is a case's inputs, rows packed end to end.
type packed struct {
	offsets []int
	inputs  map[string]any
}

// packedInputs lays the inputs out by the mask's rows: [batch][tokens], or one list with cu_seqlens.
func (c *golden) packed(mask string) packed {
	p := packed{inputs: c.Inputs}
	if starts := ints(c.Inputs["cu_seqlens"]); starts != nil {
		p.offsets = starts
		return p
	}
	p.offsets = []int{0}
	if rows := c.Inputs[mask].([]any); len(rows) > 0 {
		if _, nested := rows[0].([]any); !nested {
			p.offsets = append(p.offsets, len(rows))
			return p
		}
	}
	for _, row := range matrix(c.Inputs[mask]) {
		p.offsets = append(p.offsets, p.offsets[len(p.offsets)-1]+len(row))
	}
	return p
}

// tokens is a per-token input, nil if the case has none.
func (p packed) tokens(key string) []float64 {
	v := p.inputs[key]
	if v == nil {
		return nil
	}
	if list := v.([]any); len(list) > 0 {
		if _, nested := list[0].([]any); nested {
			return slices.Concat(matrix(v)...)
		}
	}
	return vector(v)
}

func (p packed) mask(key string) []uint8 {
	var out []uint8
	for _, m := range p.tokens(key) {
		out = append(out, uint8(m))
	}
	return out
}

// rows gives a per-token result the shape of the expected value: rows, or one list.
func (p packed) rows(c *golden, key string, x []float64) any {
	if list, ok := c.Expected[key].([]any); ok && len(list) > 0 {
		if _, nested := list[0].([]any); nested {
			return split(p.offsets, x)
		}
	}
	return x
}

func split[T any](offsets []int, x []T) [][]T {
	var out [][]T
	for i := range len(offsets) - 1 {
		out = append(out, x[offsets[i]:offsets[i+1]])
	}
	return out
}

// wantTokens compares a per-token result.
func (c *golden) wantTokens(p packed, key string, x []float64) { c.want(key, p.rows(c, key, x)) }

// floats widens a mask.
func floats(mask []uint8) []float64 {
	out := make([]float64, len(mask))
	for i, m := range mask {
		out[i] = float64(m)
	}
	return out
}

// p is a parameter: a number, d if the case has none or null.
func (c *golden) num(key string, d float64) float64 {
	if v, ok := c.Params[key]; ok && v != nil {
		return number(v)
	}
	return d
}

func (c *golden) text(key string) string { s, _ := c.Params[key].(string); return s }
func (c *golden) flag(key string) bool   { b, _ := c.Params[key].(bool); return b }
func (c *golden) object(key string) map[string]any {
	o, _ := c.Params[key].(map[string]any)
	return o
}

// sub is a case whose parameters are an object among this one's.
func (c *golden) sub(key string) *golden { return &golden{Params: c.object(key)} }
