package hf

import (
	"encoding/json"

	"github.com/weir-rl/weir/gpu"
)

// readRope reads the rotary angles: rope_theta and rope_scaling as Transformers 4 writes them, or rope_parameters as 5 does. A
// configuration without a rope_theta is refused: a default would give another model in silence.
func (o *object) readRope(c *gpu.Config) {
	_, atTop := o.lookUp("rope_theta")
	theta := o.readNumber("rope_theta", 0)
	where, s := "rope_parameters", o.readObject("rope_parameters")
	old := o.readObject("rope_scaling")
	switch {
	case s == nil:
		where, s = "rope_scaling", old
	case old != nil && !sameJSON(o.keys["rope_parameters"], o.keys["rope_scaling"]):
		o.addFault("rope_parameters and rope_scaling are both there: remove the one that is not the model's")
	}
	top, partial := o.readNumber("original_max_position_embeddings", 0), o.readNumber("partial_rotary_factor", 1)
	if s != nil {
		if _, ok := s.lookUp("rope_theta"); ok {
			within := s.readNumber("rope_theta", 0)
			if atTop && within != theta {
				o.addFault("rope_theta is %g, and %g in %s: remove the one that is not the model's", theta, within, where)
			}
			theta, atTop = within, true
		}
		partial *= s.readNumber("partial_rotary_factor", 1)
		c.RopeScaling = s.readScaling(top)
		for _, key := range s.unreadKeys() {
			if s.isUnsupported() {
				break // they belong to the other kind of angles
			}
			s.addFault("%s is %s: the key is not known", key, shortValue(s.keys[key]))
		}
		o.faults = append(o.faults, s.faults...)
	}
	if partial != 1 {
		o.addUnsupported("partial_rotary_factor is %g: the engines rotate whole heads", partial)
	}
	switch {
	case !atTop:
		o.addFault("rope_theta is missing, at the top and in rope_parameters: a default would make another model of it; copy it from the model's card")
	case theta <= 0:
		o.addFault("rope_theta is %g: must be positive", theta)
	}
	c.RopeTheta = theta
}

// readObject is an object within the file, nil where the key has none.
func (o *object) readObject(key string) *object {
	raw, ok := o.lookUp(key)
	if !ok {
		return nil
	}
	s, err := newObject(o.file+": "+key, raw)
	if err != nil {
		o.addFault("%s is %s: want an object", key, shortValue(raw))
		return nil
	}
	for name, v := range s.keys {
		if len(v) > 0 && v[0] == '{' {
			o.addFault("%s has an object %s: layers with angles of their own are not read", key, name)
			return nil
		}
	}
	return s
}

// readScaling is Llama 3's scaling, nil where the angles are not scaled.
func (o *object) readScaling(top float64) *gpu.RopeScaling {
	kind, older := o.readText("rope_type"), o.readText("type")
	if kind == "" {
		kind = older
	}
	switch kind {
	case "", "default":
		for _, key := range []string{"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"} {
			if v, ok := o.lookUp(key); ok {
				o.addFault("%s is %s without a rope_type: name the type", key, shortValue(v))
			}
		}
		return nil
	case "llama3":
	default:
		o.addUnsupported("rope_type is %q: the engines compute default and llama3", kind)
		o.lookUp("factor")
		return nil
	}
	for _, key := range []string{"factor", "low_freq_factor", "high_freq_factor"} {
		if _, ok := o.lookUp(key); !ok {
			o.addFault("%s is missing: llama3 needs it", key)
		}
	}
	original := o.readNumber("original_max_position_embeddings", top)
	if original != float64(int(original)) || original <= 0 || original > mostPositions {
		o.addFault("original_max_position_embeddings is %g: llama3 needs a whole number above 0", original)
		original = 1
	}
	return &gpu.RopeScaling{
		Factor: o.readNumber("factor", 1), LowFreqFactor: o.readNumber("low_freq_factor", 1), HighFreqFactor: o.readNumber("high_freq_factor", 4),
		OriginalMaxPositions: int(original),
	}
}

// sameJSON reports whether two values differ only in layout.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	left, lerr := json.Marshal(x)
	right, rerr := json.Marshal(y)
	return lerr == nil && rerr == nil && string(left) == string(right)
}
