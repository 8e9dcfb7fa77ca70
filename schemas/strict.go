package schemas

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// The library reads leniently: nil as anything, bytes as text, integers that wrap around, lengths as claimed. So every value is read
// through this file, which checks the code of the value first and compares its length with the input. Integers and short texts,
// which most values are, are read here and not by the library.

const cutShort = "cut short"

// input is the message that the library reads. This package also looks ahead in it, and takes bytes out of it without a copy.
type input struct {
	b  []byte
	at int
}

func (in *input) bytesLeft() int { return len(in.b) - in.at }

// takeBytes returns the next n bytes, which are there.
func (in *input) takeBytes(n int) []byte {
	in.at += n
	return in.b[in.at-n : in.at]
}

// Read, ReadByte and UnreadByte let the library read the input without a buffer of its own.
func (in *input) Read(p []byte) (int, error) {
	if in.bytesLeft() == 0 {
		return 0, io.EOF
	}
	return copy(p, in.takeBytes(min(len(p), in.bytesLeft()))), nil
}

func (in *input) ReadByte() (byte, error) {
	if in.bytesLeft() == 0 {
		return 0, io.EOF
	}
	in.at++
	return in.b[in.at-1], nil
}

func (in *input) UnreadByte() error {
	in.at--
	return nil
}

// checkError keeps an error that the library returned.
func (c *coder) checkError(err error) {
	if err != nil {
		c.refuseKey(err)
	}
}

func (c *coder) refuseKey(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.failField(cutShort)
	} else {
		c.failField(err.Error())
	}
}

// peekCode is the code of the next value, if the code is allowed. The value is not read.
func (c *coder) peekCode(allowed func(code byte) bool, fault string) (code byte, ok bool) {
	switch {
	case c.err != nil:
		return 0, false
	case c.in.bytesLeft() == 0:
		c.failField(cutShort)
		return 0, false
	}
	code = c.in.b[c.in.at]
	if !allowed(code) {
		c.failField(fault)
		return 0, false
	}
	return code, true
}

// readLength is n if the input can still hold n items of at least size bytes, else 0.
func (c *coder) readLength(n int, err error, size int) int {
	if err == nil && uint(n)*uint(size) <= uint(c.in.bytesLeft()) {
		return n
	}
	c.checkError(err)
	c.failField(cutShort)
	return 0
}

func isMapCode(code byte) bool {
	return msgpcode.IsFixedMap(code) || code == msgpcode.Map16 || code == msgpcode.Map32
}

func isArrayCode(code byte) bool {
	return msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32
}

func isBoolCode(code byte) bool { return code == msgpcode.False || code == msgpcode.True }

func isIntegerCode(code byte) bool {
	return msgpcode.IsFixedNum(code) || (code >= msgpcode.Uint8 && code <= msgpcode.Int64)
}

func isFloatCode(code byte) bool { return code == msgpcode.Float || code == msgpcode.Double }

func isNumberCode(code byte) bool { return isFloatCode(code) || isIntegerCode(code) }

func (c *coder) readMapLen() int {
	if _, ok := c.peekCode(isMapCode, "not a map"); !ok {
		return 0
	}
	n, err := c.dec.DecodeMapLen()
	return c.readLength(n, err, 2)
}

func (c *coder) readArrayLen() int {
	if _, ok := c.peekCode(isArrayCode, "not an array"); !ok {
		return 0
	}
	n, err := c.dec.DecodeArrayLen()
	return c.readLength(n, err, 1)
}

// readKeyText is text that need not be UTF-8, since it is only compared; nil if there is none.
func (c *coder) readKeyText() []byte {
	code, ok := c.peekCode(msgpcode.IsString, "not a string")
	if !ok {
		return nil
	}
	if msgpcode.IsFixedString(code) {
		c.in.at++
		return c.in.takeBytes(c.readLength(int(code&msgpcode.FixedStrMask), nil, 1))
	}
	n, err := c.dec.DecodeBytesLen()
	return c.in.takeBytes(c.readLength(n, err, 1))
}

func (c *coder) readText() []byte {
	b := c.readKeyText()
	if !utf8.Valid(b) {
		c.failField("not valid UTF-8")
		return nil
	}
	return b
}

func (c *coder) readBytes() []byte {
	if _, ok := c.peekCode(msgpcode.IsBin, "not binary"); !ok {
		return nil
	}
	n, err := c.dec.DecodeBytesLen()
	return c.in.takeBytes(c.readLength(n, err, 1))
}

func (c *coder) readBool() bool {
	if _, ok := c.peekCode(isBoolCode, "not a boolean"); !ok {
		return false
	}
	v, err := c.dec.DecodeBool()
	c.checkError(err)
	return v
}

// readInteger reads any integer that fits int64 or, where signed is false, uint64, of which it returns the bits.
func (c *coder) readInteger(signed bool) int64 {
	code, ok := c.peekCode(isIntegerCode, "not an integer")
	if !ok {
		return 0
	}
	c.in.at++
	v := int64(int8(code)) // of a fixed number
	if !msgpcode.IsFixedNum(code) {
		v = c.readBigEndian(1<<(code&3), code >= msgpcode.Int8)
	}
	if v < 0 && signed == (code == msgpcode.Uint64) {
		c.failField("integer out of range")
	}
	return v
}

// readBigEndian reads n big-endian bytes.
func (c *coder) readBigEndian(n int, signed bool) int64 {
	if c.in.bytesLeft() < n {
		c.failField(cutShort)
		return 0
	}
	v := int64(0)
	for i, b := range c.in.takeBytes(n) {
		if i == 0 && signed {
			v = int64(int8(b))
		} else {
			v = v<<8 | int64(b)
		}
	}
	return v
}

// readFloat takes integers too: writers in languages with a single number type send 1.0 as 1.
func (c *coder) readFloat() float64 {
	code, ok := c.peekCode(isNumberCode, "not a number")
	if !ok {
		return 0
	}
	v, err := c.dec.DecodeFloat64()
	c.checkError(err)
	if !isFloatCode(code) && (math.Abs(v) > 1<<53 || (v < 0 && code == msgpcode.Uint64)) {
		c.failField("integer too large for a number field")
	}
	return v
}

// readTime takes the three forms of msgpack's own timestamp; the library takes others too. The library carries excess nanoseconds over
// into the seconds, so the nanoseconds are checked first.
func (c *coder) readTime() time.Time {
	if c.err != nil {
		return time.Time{}
	}
	const extension = 0xff // -1 as a byte
	nanos := uint32(0)
	switch b := c.in.b[c.in.at:]; {
	case len(b) >= 6 && b[0] == msgpcode.FixExt4 && b[1] == extension:
	case len(b) >= 10 && b[0] == msgpcode.FixExt8 && b[1] == extension:
		nanos = binary.BigEndian.Uint32(b[2:]) >> 2
	case len(b) >= 15 && b[0] == msgpcode.Ext8 && b[1] == 12 && b[2] == extension:
		nanos = binary.BigEndian.Uint32(b[3:])
	default:
		c.failField("not a whole timestamp")
		return time.Time{}
	}
	t, err := c.dec.DecodeTime()
	c.checkError(err)
	if sec := t.Unix(); nanos >= 1e9 || sec < -1<<55 || sec > 1<<55 {
		c.failField("timestamp out of range")
	}
	return t.UTC()
}
