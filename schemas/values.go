package schemas

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// A value function writes or reads a value, as the mode says. A field function is a key and a value function.

func textValue[T ~string](c *coder, v *T) {
	if c.mode == writing {
		// Always valid UTF-8: the output of a tool must not make a message that every reader refuses.
		s := string(*v)
		if !utf8.ValidString(s) {
			s = strings.ToValidUTF8(s, "\uFFFD")
		}
		c.checkError(c.enc.EncodeString(s))
		return
	}
	// The value of before is kept where it is equal, which saves the copy.
	if b := c.readText(); string(b) != string(*v) {
		*v = T(b)
	}
}

func integerValue[T ~int | ~int64](c *coder, v *T) {
	if c.mode == writing {
		c.checkError(c.enc.EncodeInt(int64(*v)))
		return
	}
	n := c.readInteger(true)
	if *v = T(n); int64(*v) != n {
		c.failField("integer out of range")
	}
}

func float64Value(c *coder, v *float64) {
	if c.mode == writing {
		c.checkError(c.enc.EncodeFloat64(*v))
		return
	}
	*v = c.readFloat()
}

func codeTextValue[T ~string](c *coder, name string, v *T, optional bool) {
	switch c.stepField(name, optional, *v == "") {
	case now:
		textValue(c, v)
	case lacking:
		*v = ""
	}
}

func codeIntegerValue[T ~int | ~int64](c *coder, name string, v *T, optional bool) {
	switch c.stepField(name, optional, *v == 0) {
	case now:
		integerValue(c, v)
	case lacking:
		*v = 0
	}
}

func (c *coder) codeBool(name string, v *bool, optional bool) {
	switch turn := c.stepField(name, optional, !*v); {
	case turn == lacking:
		*v = false
	case turn != now:
	case c.mode == writing:
		c.checkError(c.enc.EncodeBool(*v))
	default:
		*v = c.readBool()
	}
}

func (c *coder) codeFloat64(name string, v *float64, optional bool) {
	// Negative zero is a value of its own on the wire, and equals 0 in Go.
	switch c.stepField(name, optional, math.Float64bits(*v) == 0) {
	case now:
		float64Value(c, v)
	case lacking:
		*v = 0
	}
}

func (c *coder) codeFloat32(name string, v *float32) {
	switch {
	case c.stepField(name, false, false) != now:
	case c.mode == writing:
		c.checkError(c.enc.EncodeFloat32(*v))
	default:
		*v = float32(c.readFloat())
	}
}

func (c *coder) codeUint64(name string, v *uint64) {
	switch {
	case c.stepField(name, false, false) != now:
	case c.mode == writing:
		c.checkError(c.enc.EncodeUint(*v))
	default:
		*v = uint64(c.readInteger(false))
	}
}

func (c *coder) codeTime(name string, v *time.Time) {
	switch {
	case c.stepField(name, false, false) != now:
	case c.mode == writing:
		c.checkError(c.enc.EncodeTime(*v))
	default:
		*v = c.readTime()
	}
}

// codeArray is an array, element by element. Elements are read in place, so that their memory is used again.
func codeArray[T any](c *coder, name string, v *[]T, optional bool, element func(i int, e *T)) {
	switch turn := c.stepField(name, optional, len(*v) == 0); {
	case turn == lacking:
		*v = (*v)[:0]
	case turn != now:
	case c.mode == writing:
		c.checkError(c.enc.EncodeArrayLen(len(*v)))
		for i := range *v {
			element(i, &(*v)[i])
		}
	default:
		n := c.readArrayLen()
		*v = (*v)[:0]
		for i := 0; i < n && c.err == nil; i++ {
			// The list grows as elements come: its memory follows the elements that were read, not the claimed length.
			if i < cap(*v) {
				*v = (*v)[:i+1]
			} else {
				*v = append(*v, *new(T))
			}
			element(i, &(*v)[i])
		}
	}
}

func (c *coder) codeTexts(name string, v *[]string, optional bool) {
	codeArray(c, name, v, optional, func(_ int, s *string) { textValue(c, s) })
}

func (c *coder) codeInts(name string, v *[]int) {
	codeArray(c, name, v, false, func(_ int, n *int) { integerValue(c, n) })
}

// structures is an array of structs.
func structures[T any, P interface {
	*T
	object
}](c *coder, name string, v *[]T, optional bool) {
	codeArray(c, name, v, optional, func(i int, e *T) { c.codeNested(name, i, P(e)) })
}

// codeTextMap is a map by name. It is written in the order of its keys, so that equal messages have equal bytes.
func codeTextMap[V string | float64](c *coder, name string, m *map[string]V, optional bool) {
	switch turn := c.stepField(name, optional, len(*m) == 0); {
	case turn == lacking:
		clear(*m)
	case turn != now:
	case c.mode == writing:
		c.checkError(c.enc.EncodeMapLen(len(*m)))
		keys := slices.AppendSeq(make([]string, 0, len(*m)), maps.Keys(*m))
		slices.Sort(keys)
		var v V
		for i := range keys {
			textValue(c, &keys[i])
			v = (*m)[keys[i]]
			mappedValue(c, &v)
		}
	default:
		n := c.readMapLen()
		clear(*m)
		var v V
		for i := 0; i < n && c.err == nil; i++ {
			key := string(c.readText())
			if _, twice := (*m)[key]; twice {
				c.failField("key " + strconv.Quote(key) + " twice")
			}
			if mappedValue(c, &v); c.err != nil {
				return
			}
			if *m == nil {
				*m = make(map[string]V)
			}
			(*m)[key] = v
		}
	}
}

func mappedValue[V string | float64](c *coder, v *V) {
	switch v := any(v).(type) {
	case *string:
		textValue(c, v)
	case *float64:
		float64Value(c, v)
	}
}

// codeOctets is bytes as they are.
func codeOctets[T ~[]byte](c *coder, name string, v *T, optional bool) {
	switch turn := c.stepField(name, optional, len(*v) == 0); {
	case turn == lacking:
		*v = (*v)[:0]
	case turn != now:
	case c.mode == writing:
		c.checkError(c.enc.EncodeBytesLen(len(*v)))
		c.out = appendBytes(c.out, *v)
	case c.adopt:
		if *v = slices.Clip(c.readBytes()); len(*v) == 0 {
			*v = nil
		}
	default:
		*v = appendBytes((*v)[:0], c.readBytes())
	}
}

// codeWordArray is an array of four-byte values.
func codeWordArray[S ~[]T, T word](c *coder, name string, v *S) {
	switch {
	case c.stepField(name, false, false) != now:
	case c.mode == writing:
		c.checkError(c.enc.EncodeBytesLen(4 * len(*v)))
		c.out = appendWords(c.out, []T(*v), c.little)
	default:
		raw := c.readBytes()
		if len(raw)%4 != 0 {
			c.failField("not a whole number of values")
		}
		switch {
		case c.err != nil:
		case c.adopt && c.little:
			*v = viewAsWords[T](c.alignArray(raw))
		default:
			*v = readWords([]T(*v), raw, c.little)
		}
	}
}

// runLengths is an array of want values packed as runs. A struct has at most a single such array; want is called only when every other
// field has been read.
func (c *coder) runLengths(name string, v *Runs, want int) {
	switch turn := c.stepField(name, false, false); {
	case turn == now && c.mode == writing:
		// The length has 32 bits and is written last: counting the runs first would read the array twice.
		at := len(c.out)
		c.out = appendRuns(append(c.out, msgpcode.Bin32, 0, 0, 0, 0), *v)
		binary.BigEndian.PutUint32(c.out[at+1:], uint32(len(c.out)-at-5))
	case turn == now:
		c.runs = c.readBytes()
	case c.mode == finishing && c.err == nil:
		c.field = name
		values, fault := readRuns(*v, c.runs, want)
		c.failField(fault)
		*v = values
	}
}
