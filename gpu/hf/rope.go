package hf

import (
	"encoding/json"

	"github.com/weir-rl/weir/gpu"
)

// rope reads the rotary angles: rope_theta and rope_scaling as Transformers 4 writes them, or rope_parameters as 5 does. A
// configuration without a rope_theta is refused: a default would give another model in silence.
func (o *object) rope(c *gpu.Config) {
	_, atTop := o.get("rope_theta")
	theta := o.number("rope_theta", 0)
	where, s := "rope_parameters", o.part("rope_parameters")
	old := o.part("rope_scaling")
	switch {
	case s == nil:
		where, s = "rope_scaling", old
	case old != nil && !same(o.keys["rope_parameters"], o.keys["rope_scaling"]):
		o.bad("rope_parameters and rope_scaling are both there: remove the one that is not the model's")
	}
	top, partial := o.number("original_max_position_embeddings", 0), o.number("partial_rotary_factor", 1)
	if s != nil {
		if _, ok := s.get("rope_theta"); ok {
			within := s.number("rope_theta", 0)
			if atTop && within != theta {
				o.bad("rope_theta is %g, and %g in %s: remove the one that is not the model's", theta, within, where)
			}
			theta, atTop = within, true
		}
		partial *= s.number("partial_rotary_factor", 1)
		c.RopeScaling = s.scaling(top)
		for _, key := range s.unread() {
			s.bad("%s is %s: the key is not known", key, short(s.keys[key]))
		}
		o.faults = append(o.faults, s.faults...)
	}
	if partial != 1 {
		o.bad("partial_rotary_factor is %g: the engines rotate whole heads", partial)
	}
	switch {
	case !atTop:
		o.bad("rope_theta is missing, at the top and in rope_parameters: a default would make another model of it; copy it from the model's card")
	case theta <= 0:
		o.bad("rope_theta is %g: must be positive", theta)
	}
	c.RopeTheta = theta
}

// part is an object within the file, nil where the key has none.
func (o *object) part(key string) *object {
	raw, ok := o.get(key)
	if !ok {
		return nil
	}
	s, err := newObject(o.file+": "+key, raw)
	if err != nil {
		o.bad("%s is %s: want an object", key, short(raw))
		return nil
	}
	for name, v := range s.keys {
		if len(v) > 0 && v[0] == '{' {
			o.bad("%s has an object %s: layers with angles of their own are not read", key, name)
			return nil
		}
	}
	return s
}

// scaling is Llama 3's, nil for angles as they are.
func (o *object) scaling(top float64) *gpu.RopeScaling {
	kind, older := o.text("rope_type"), o.text("type")
	if kind == "" {
		kind = older
	}
	switch kind {
	case "", "default":
		for _, key := range []string{"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"} {
			if v, ok := o.get(key); ok {
				o.bad("%s is %s without a rope_type: name the type", key, short(v))
			}
		}
		return nil
	case "llama3":
	default:
		o.bad("rope_type is %q: the engines compute default and llama3", kind)
		o.get("factor")
		return nil
	}
	for _, key := range []string{"factor", "low_freq_factor", "high_freq_factor"} {
		if _, ok := o.get(key); !ok {
			o.bad("%s is missing: llama3 needs it", key)
		}
	}
	original := o.number("original_max_position_embeddings", top)
	if original != float64(int(original)) || original <= 0 || original > mostPositions {
		o.bad("original_max_position_embeddings is %g: llama3 needs a whole number above 0", original)
		original = 1
	}
	return &gpu.RopeScaling{
		Factor: o.number("factor", 1), LowFreqFactor: o.number("low_freq_factor", 1), HighFreqFactor: o.number("high_freq_factor", 4),
		OriginalMaxPositions: int(original),
	}
}

// same says whether two values are the same but for how they are laid out.
func same(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	left, lerr := json.Marshal(x)
	right, rerr := json.Marshal(y)
	return lerr == nil && rerr == nil && string(left) == string(right)
}
