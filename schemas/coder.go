package schemas

import (
	"fmt"
	"strconv"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// object is a struct that lists its fields. The same list serves writing and reading, so that the two cannot come to differ.
type object interface {
	// fields calls a method or function of c for every field, always in the same order.
	codeFields(c *coder)
}

// mode selects whether the calls of a field list write or read.
type mode uint8

const (
	writing   mode = iota // append key and value
	reading               // take the value if the pending key is this field's
	finishing             // every key has been read: refuse missing fields, unpack runs
)

// coder is the state of writing or reading a message.
type coder struct {
	mode   mode
	little bool
	err    error

	enc   *msgpack.Encoder // writing: onto out
	out   output           // writing: the bytes so far
	count int              // writing: fields of the map at hand

	dec   *msgpack.Decoder // reading: from in
	in    input            // reading: the message
	open  int              // reading: keys of the map at hand not yet taken
	key   []byte           // reading: the pending key, nil if the next key is not yet read
	ord   int              // reading, finishing: ordinal of the field call
	seen  uint64           // reading, finishing: ordinals that came
	late  uint64           // reading: ordinals of required fields whose key had not come at their call
	runs  []byte           // reading: packed runs, unpacked when their number is known
	path  []byte           // reading: where the map at hand is, "segments[3]."
	field string           // reading: the field at hand
	adopt bool             // reading: arrays stay in the input
	moved []moved          // reading: the arrays that were moved within the input
}

// output takes the bytes that the library writes, and the arrays, which are copied.
type output []byte

func (o *output) Write(p []byte) (int, error) {
	*o = append(*o, p...)
	return len(p), nil
}

func (o *output) WriteByte(b byte) error {
	*o = append(*o, b)
	return nil
}

func (c *coder) failField(fault string) {
	if c.err == nil && fault != "" {
		c.err = fmt.Errorf("%w: %s%s: %s", ErrMalformed, c.path, c.field, fault)
	}
}

// step selects the action of a field call.
type step uint8

const (
	skip    step = iota // nothing
	now                 // write or read the value
	lacking             // set the value to zero: its key did not come
)

// stepField writes or takes the key of a field. An optional field is not written when it is empty, and is lacking until its key has come.
func (c *coder) stepField(name string, optional, empty bool) step {
	if c.mode == writing {
		if optional && empty {
			return skip
		}
		c.count++
		c.out = append(append(c.out, msgpcode.FixedStrLow|byte(len(name))), name...) // names are shorter than 32 bytes
		return now
	}
	bit := uint64(1) << c.ord
	c.ord++
	switch seen := c.seen&bit != 0; {
	case c.err != nil:
	case c.open > 0 && c.takeFieldKey(name):
		c.field = name
		if seen {
			c.failField("key twice")
			break
		}
		c.seen |= bit
		c.open--
		return now
	case seen:
	case optional:
		return lacking
	case c.mode == finishing:
		c.field = name
		c.failField("key missing")
	default:
		c.late |= bit
	}
	return skip
}

// takeFieldKey takes the next key if it is name. Another key is kept for the fields to come.
func (c *coder) takeFieldKey(name string) bool {
	if c.key == nil {
		// A key as this package writes it is compared in place, without being read.
		if n := len(name) + 1; n <= c.in.bytesLeft() && c.in.b[c.in.at] == msgpcode.FixedStrLow|byte(n-1) &&
			string(c.in.b[c.in.at+1:c.in.at+n]) == name {
			c.in.at += n
			return true
		}
		field := c.field
		c.field = "key"
		c.key = c.readKeyText()
		if c.err != nil {
			return false
		}
		c.field = field
	}
	if string(c.key) != name {
		return false
	}
	c.key = nil
	return true
}

// readObject reads the fields of a map of n keys. Keys come in any order; fields in the order of this package's writer take a single pass.
func (c *coder) readObject(o object, n int) {
	open, ord, seen, late, runs := c.open, c.ord, c.seen, c.late, c.runs
	c.open, c.key, c.seen, c.late, c.runs = n, nil, 0, 0, nil
	for pass := 0; (pass == 0 || c.open > 0) && c.err == nil; pass++ {
		before := c.open
		c.ord = 0
		o.codeFields(c)
		if c.open == before && before > 0 && c.err == nil {
			c.field = strconv.Quote(string(c.key))
			c.failField("unknown key")
		}
	}
	// Nothing is left to do where every required field came.
	if c.err == nil && (c.late&^c.seen != 0 || c.runs != nil) {
		c.mode, c.ord = finishing, 0
		o.codeFields(c)
		c.mode = reading
	}
	c.open, c.ord, c.seen, c.late, c.runs = open, ord, seen, late, runs
}

// codeNested is a map of fewer than 16 fields at name, or name[i] for i >= 0.
func (c *coder) codeNested(name string, i int, o object) {
	if c.mode == writing {
		count, at := c.count, len(c.out)
		c.count = 0
		c.out = append(c.out, 0)
		o.codeFields(c)
		c.out[at] = msgpcode.FixedMapLow | byte(c.count)
		c.count = count
		return
	}
	mark := len(c.path)
	c.path = append(c.path, name...)
	if i >= 0 {
		c.path = append(strconv.AppendInt(append(c.path, '['), int64(i), 10), ']')
	}
	c.field = ""
	n := c.readMapLen()
	c.path = append(c.path, '.')
	c.readObject(o, n)
	if c.err == nil {
		c.path = c.path[:mark]
	}
}

// codeStructure is a nested struct.
func (c *coder) codeStructure(name string, o object) {
	if c.stepField(name, false, false) == now {
		c.codeNested(name, -1, o)
	}
}

// optional is a nested struct that may be left out.
func optional[T any, P interface {
	*T
	object
}](c *coder, name string, v **T) {
	switch c.stepField(name, true, *v == nil) {
	case now:
		if c.mode != writing {
			*v = new(T)
		}
		c.codeNested(name, -1, P(*v))
	case lacking:
		*v = nil
	case skip:
	}
}
