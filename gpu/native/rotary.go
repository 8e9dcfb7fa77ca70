package native

import "math"

// rotary holds the cosines and sines of rotary position embeddings (Su et al. 2021) for the positions seen
// so far: [positions, hd/2] each. Pair j of a head is elements j and j+hd/2, Hugging Face's layout.
type rotary struct {
	half     int
	cos, sin []float32
	// speeds are the pairs' angles a position, [half]: gpu.Config.RopeSpeeds.
	speeds []float64
}

// growTables makes the tables cover positions [0, n).
func (r *rotary) growTables(n int) {
	for pos := len(r.cos) / r.half; pos < n; pos++ {
		for _, speed := range r.speeds {
			s, c := math.Sincos(float64(pos) * speed)
			r.cos = append(r.cos, float32(c))
			r.sin = append(r.sin, float32(s))
		}
	}
}

// rotateRow rotates the heads of a row in place and scales them.
func (r *rotary) rotateRow(row []float32, pos int, scale float32) {
	cos, sin := r.cos[pos*r.half:(pos+1)*r.half], r.sin[pos*r.half:(pos+1)*r.half]
	for ; len(row) > 0; row = row[2*r.half:] {
		a, b := row[:r.half], row[r.half:2*r.half]
		sin, a, b := sin[:len(cos)], a[:len(cos)], b[:len(cos)]
		for j, c := range cos {
			x, y, s := a[j]*scale, b[j]*scale, sin[j]
			a[j] = float32(x*c) - float32(y*s)
			b[j] = float32(y*c) + float32(x*s)
		}
	}
}

// rotateRowBack is the gradient of rotateRow: the opposite rotation, with the same scale.
func (r *rotary) rotateRowBack(row []float32, pos int, scale float32) {
	cos, sin := r.cos[pos*r.half:(pos+1)*r.half], r.sin[pos*r.half:(pos+1)*r.half]
	for ; len(row) > 0; row = row[2*r.half:] {
		a, b := row[:r.half], row[r.half:2*r.half]
		sin, a, b := sin[:len(cos)], a[:len(cos)], b[:len(cos)]
		for j, c := range cos {
			x, y, s := a[j]*scale, b[j]*scale, sin[j]
			a[j] = float32(x*c) + float32(y*s)
			b[j] = float32(y*c) - float32(x*s)
		}
	}
}
