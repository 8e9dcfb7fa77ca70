package schemas

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// message is an object that crosses the wire by itself.
type message interface {
	object
	messageKind() Kind
	// wireSize is about how many bytes the message takes, so that the output grows once.
	wireSize() int
}

func (*Ticket) messageKind() Kind          { return KindTicket }
func (*Trajectory) messageKind() Kind      { return KindTrajectory }
func (*GroupClosed) messageKind() Kind     { return KindGroupClosed }
func (*Manifest) messageKind() Kind        { return KindManifest }
func (*Control) messageKind() Kind         { return KindControl }
func (*Event) messageKind() Kind           { return KindEvent }
func (*GenerateRequest) messageKind() Kind { return KindGenerateRequest }
func (*GenerateChunk) messageKind() Kind   { return KindGenerateChunk }
func (*ToolRequest) messageKind() Kind     { return KindToolRequest }
func (*ToolReply) messageKind() Kind       { return KindToolReply }
func (*Evaluation) messageKind() Kind      { return KindEvaluation }
func (*JournalRecord) messageKind() Kind   { return KindJournalRecord }

func (*GroupClosed) wireSize() int       { return 1 << 8 }
func (m *Manifest) wireSize() int        { return 512 + 256*len(m.AllShards()) + len(m.Config) }
func (k *Control) wireSize() int         { return 1<<9 + 64*len(k.Limits) }
func (*Event) wireSize() int             { return 1 << 10 }
func (r *GenerateRequest) wireSize() int { return 256 + 4*len(r.Tokens) + 4*len(r.StopTokens) }
func (g *GenerateChunk) wireSize() int   { return 256 + 8*len(g.Tokens) }
func (r *ToolRequest) wireSize() int     { return 512 + len(r.World) + len(r.Arguments) }
func (r *ToolReply) wireSize() int       { return 512 + len(r.Data) }
func (e *Evaluation) wireSize() int      { return 1<<10 + len(e.Trajectory) + 256*len(e.Turns) }

func (t *Ticket) wireSize() int {
	n := 1<<10 + len(t.Prompt.World) + len(t.Prompt.Hidden)
	if t.Fork != nil {
		n += 256*len(t.Fork.Segments) + 9*t.Fork.Tokens() + 96*len(t.Fork.Turns)
	}
	return n
}

func (t *Trajectory) wireSize() int {
	n := 1024 + 96*len(t.Turns) + 48*len(t.Values) + len(t.Answer) + len(t.Error)
	for i := range t.Segments {
		n += 256 + 9*len(t.Segments[i].Tokens)
	}
	for i := range t.Turns {
		for k := range t.Turns[i].Calls {
			call := &t.Turns[i].Calls[k]
			n += 64 + len(call.Arguments) + len(call.Error)
		}
	}
	return n
}

// asMessage is the message in v, which is a message or a pointer to a message.
func asMessage(v any) (message, error) {
	switch v := v.(type) {
	case message:
		return v, nil
	case Ticket:
		return &v, nil
	case Trajectory:
		return &v, nil
	case GroupClosed:
		return &v, nil
	case Manifest:
		return &v, nil
	case Control:
		return &v, nil
	case Event:
		return &v, nil
	case GenerateRequest:
		return &v, nil
	case GenerateChunk:
		return &v, nil
	case ToolRequest:
		return &v, nil
	case ToolReply:
		return &v, nil
	case Evaluation:
		return &v, nil
	case JournalRecord:
		return &v, nil
	default:
		return nil, fmt.Errorf("%w: %T is no message", ErrKind, v)
	}
}

// Marshal is the wire form of v, a message of this package or a pointer to a message. It does not validate v.
// Strings that are not UTF-8 are written with U+FFFD in place of the bytes that break it. Marshal fails only for other types.
func Marshal(v any) ([]byte, error) { return Append(nil, v) }

// Append appends the wire form of v to dst, as [Marshal] makes it. Where dst has room it copies v's arrays once and allocates next to
// nothing.
func Append(dst []byte, v any) ([]byte, error) { return new(coder).encodeMessage(dst, v) }

// Encoder writes messages into a buffer that it keeps. The zero value is ready. It is not safe for use by several goroutines.
type Encoder struct{ c coder }

// Encode is the wire form of v, as [Marshal] makes it. The bytes are good until the next call.
func (e *Encoder) Encode(v any) ([]byte, error) { return e.c.encodeMessage(e.c.out[:0], v) }

func (c *coder) encodeMessage(dst []byte, v any) ([]byte, error) {
	m, err := asMessage(v)
	if err != nil {
		return dst, err
	}
	c.mode, c.little, c.count, c.err = writing, nativeLittle(), 2, nil
	c.out = slices.Grow(dst, m.wireSize())
	c.enc = msgpack.GetEncoder()
	c.enc.Reset(&c.out)
	at := len(c.out)
	// A map of 16-bit length, set when the fields have been counted.
	c.out = append(c.out, msgpcode.Map16, 0, 0)
	c.checkError(c.enc.EncodeString("schema"))
	c.checkError(c.enc.EncodeInt(Version))
	c.checkError(c.enc.EncodeString("kind"))
	c.checkError(c.enc.EncodeString(string(m.messageKind())))
	m.codeFields(c)
	binary.BigEndian.PutUint16(c.out[at+1:], uint16(c.count))
	msgpack.PutEncoder(c.enc)
	c.enc = nil
	return c.out, c.err
}

// Unmarshal reads the message in data into v, a pointer to a message of this package, and overwrites every field of v. The memory of
// v's slices and maps is used again, and nothing of v points into data. Empty slices and maps become nil where v had none.
//
// It fails with [ErrVersion], [ErrKind] or [ErrMalformed], and v is then undefined. Keys may come in any order after the first two,
// each once. A key that this version does not have is refused, not skipped: a new field is a new version, so an unknown key means
// that the writer and the reader disagree on the meaning of the message. The exception is a field that a new setting alone writes,
// such as [Trajectory.Values]: builds without the setting refuse it. Bytes after the message are refused. Unmarshal takes at
// most a small multiple of len(data) of memory.
func Unmarshal(data []byte, v any) error { return new(coder).decodeMessage(data, v) }

// Decoder reads messages in turn and uses its memory again. The zero value is ready. It is not safe for use by several goroutines.
type Decoder struct{ c coder }

// Decode is [Unmarshal].
func (d *Decoder) Decode(data []byte, v any) error { return d.c.decodeMessage(data, v) }

func (c *coder) decodeMessage(data []byte, v any) error {
	m, ok := v.(message)
	if !ok {
		return fmt.Errorf("%w: cannot read into %T", ErrKind, v)
	}
	c.beginReading(data)
	defer c.releaseInput()
	kind, _, n, err := c.readHeader()
	if err != nil {
		return err
	}
	if kind != m.messageKind() {
		return fmt.Errorf("%w: %s instead of %s", ErrKind, kind, m.messageKind())
	}
	c.path = append(append(c.path, kind...), '.')
	c.readObject(m, n)
	if left := c.in.bytesLeft(); c.err == nil && left > 0 {
		c.err = fmt.Errorf("%w: %s: %d bytes after the message", ErrMalformed, kind, left)
	}
	return c.err
}

// beginReading makes c read data, in the memory that c has.
func (c *coder) beginReading(data []byte) {
	*c = coder{mode: reading, little: nativeLittle(), dec: msgpack.GetDecoder(), in: input{b: data}, path: c.path[:0], adopt: c.adopt}
	c.dec.Reset(&c.in)
}

// releaseInput lets go of the input.
func (c *coder) releaseInput() {
	msgpack.PutDecoder(c.dec)
	c.dec, c.in, c.key, c.runs = nil, input{}, nil, nil
}

// Peek is the kind and the wire version of the message at the beginning of data; it reads no more. It fails with [ErrMalformed] if data
// does not begin with a message, and with [ErrVersion] or [ErrKind], naming the version or kind, if this build cannot read it.
func Peek(data []byte) (Kind, int, error) {
	var c coder
	c.beginReading(data)
	defer c.releaseInput()
	kind, version, _, err := c.readHeader()
	return kind, version, err
}

// readHeader reads the map header and the first two keys, and returns the number of the other keys.
func (c *coder) readHeader() (kind Kind, version, n int, err error) {
	c.field = "header"
	n = c.readMapLen()
	if n < 2 {
		c.failField("no schema and kind")
	}
	c.open = n
	c.field = "schema"
	if c.stepField("schema", false, false) != now {
		c.failField("not the first key")
	}
	if integerValue(c, &version); version < 0 || version > math.MaxInt32 {
		c.failField("integer out of range")
	}
	c.field = "kind"
	if c.err == nil && c.stepField("kind", false, false) != now {
		c.failField("not the second key")
	}
	name := c.readText()
	if c.err != nil {
		return "", 0, 0, c.err
	}
	kind, known := lookUpKind(name)
	if version != Version {
		return kind, version, 0, fmt.Errorf("%w: %d; this build reads %d", ErrVersion, version, Version)
	}
	if !known {
		return kind, version, 0, fmt.Errorf("%w: %.40q", ErrKind, string(kind))
	}
	return kind, version, n - 2, nil
}

// lookUpKind is the kind of a name, and whether this build knows the kind.
func lookUpKind(name []byte) (Kind, bool) {
	for _, kind := range [...]Kind{
		KindTrajectory, KindGenerateChunk, KindGenerateRequest, KindTicket, KindGroupClosed,
		KindManifest, KindControl, KindEvent, KindToolRequest, KindToolReply, KindEvaluation, KindJournalRecord,
	} {
		if string(name) == string(kind) {
			return kind, true
		}
	}
	return Kind(name), false
}
