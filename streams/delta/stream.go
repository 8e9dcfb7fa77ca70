package delta

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// blockBytes is how much of a file is compared at once: the memory in use is a small multiple of it. A whole number
// of numbers of any width.
const blockBytes = 4 << 20

// Encode is next as its difference from base, both a whole file of numbers of width bytes (2 or 4). Bytes that
// are no such numbers, as a header, cost a little more and are kept just as well.
func Encode(base, next []byte, width int) ([]byte, error) {
	if len(base) != len(next) {
		return nil, fmt.Errorf("%w: %d and %d bytes", ErrSize, len(base), len(next))
	}
	var out bytes.Buffer
	err := Write(&out, bytes.NewReader(base), bytes.NewReader(next), int64(len(next)), width)
	return out.Bytes(), err
}

// Write is Encode of two files of size bytes each, which are read once and side by side, some megabytes at a time. Errors
// of the readers and of out are returned as they are.
func Write(out io.Writer, base, next io.Reader, size int64, width int) error {
	if width != 2 && width != 4 {
		return fmt.Errorf("%w: numbers of %d bytes", ErrSize, width)
	}
	enc, err := newEncoder()
	if err != nil {
		return err
	}
	defer enc.closeEncoder()
	block := int(max(min(size, blockBytes), 1))
	room, encoded, head := make([]byte, 2*block), []byte(nil), []byte(nil)
	if size > blockBytes {
		head = binary.AppendUvarint([]byte{inBlocks, byte(width)}, uint64(size))
		head = binary.AppendUvarint(head, uint64(block))
	}
	for at := int64(0); at == 0 || at < size; at += int64(block) {
		n := int(min(int64(block), size-at))
		before, after := room[:n], room[block:block+n]
		if _, err := io.ReadFull(base, before); err != nil {
			return err
		}
		if _, err := io.ReadFull(next, after); err != nil {
			return err
		}
		encoded = enc.encodeBlock(encoded[:0], before, after, width)
		if size > blockBytes {
			head = binary.AppendUvarint(head, uint64(len(encoded)))
		}
		if _, err := out.Write(head); err != nil {
			return err
		}
		if _, err := out.Write(encoded); err != nil {
			return err
		}
		head = head[:0]
	}
	return nil
}

// Decode returns the bytes that [Encode] was given as next, with the same base. It fails with [ErrCorrupt] on anything else that
// it can tell apart; memory taken is a small multiple of base, whatever the delta claims.
func Decode(base, encoded []byte) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, len(base)))
	err := Apply(out, bytes.NewReader(base), int64(len(base)), bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Apply is Decode of files: it applies a delta to base, of size bytes, and writes the result to out, some megabytes at a time. Errors of
// base and out are returned as they are.
func Apply(out io.Writer, base io.Reader, size int64, encoded io.Reader) error {
	in := bufio.NewReader(encoded)
	head, err := in.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(head) < 2 || head[0] != inBlocks {
		return applyBlock(out, base, size, in)
	}
	if _, err := in.Discard(2); err != nil {
		return err
	}
	whole, err := readCount(in, uint64(size))
	if err != nil {
		return err
	}
	block, err := readCount(in, mostBlock)
	if err != nil {
		return err
	}
	if whole != size || block == 0 || (head[1] != 2 && head[1] != 4) {
		return fmt.Errorf("%w: header does not fit a base of %d bytes", ErrCorrupt, size)
	}
	block = min(block, size)
	dec, err := newDecoder(int(block))
	if err != nil {
		return err
	}
	defer dec.Close()
	room := make([]byte, block)
	var packed []byte
	for at := int64(0); at < size; at += block {
		before := room[:min(block, size-at)]
		n, err := readCount(in, uint64(2*len(before)+mostOverhead))
		if err != nil {
			return err
		}
		packed = slices.Grow(packed[:0], int(n))[:n]
		if _, err := io.ReadFull(in, packed); err != nil {
			return cutShort(err)
		}
		if _, err := io.ReadFull(base, before); err != nil {
			return err
		}
		after, err := decodeBlock(dec, before, packed)
		if err != nil {
			return fmt.Errorf("block at %d: %w", at, err)
		}
		if _, err := out.Write(after); err != nil {
			return err
		}
	}
	return checkEnd(in)
}

const (
	// mostBlock bounds the blocks that are read: more memory than that no writer of this format asks for.
	mostBlock = 1 << 26
	// mostOverhead is more than a delta takes beside its numbers.
	mostOverhead = 1 << 12
)

// applyBlock undoes a delta of format 1, which is of a file of at most a block.
func applyBlock(out io.Writer, base io.Reader, size int64, encoded io.Reader) error {
	if size > blockBytes {
		return fmt.Errorf("%w: not in blocks, of %d bytes", ErrCorrupt, size)
	}
	packed, err := io.ReadAll(io.LimitReader(encoded, 2*size+mostOverhead+1))
	if err != nil {
		return err
	}
	before := make([]byte, size)
	if _, err := io.ReadFull(base, before); err != nil {
		return err
	}
	dec, err := newDecoder(int(size))
	if err != nil {
		return err
	}
	defer dec.Close()
	after, err := decodeBlock(dec, before, packed)
	if err != nil {
		return err
	}
	_, err = out.Write(after)
	return err
}

// readCount reads a uvarint of at most most.
func readCount(in *bufio.Reader, most uint64) (int64, error) {
	n := uint64(0)
	for shift := 0; ; shift += 7 {
		b, err := in.ReadByte()
		if err != nil {
			return 0, cutShort(err)
		}
		n |= uint64(b&0x7f) << shift
		if shift > 56 || n > most {
			return 0, fmt.Errorf("%w: a length of more than %d", ErrCorrupt, most)
		}
		if b < 0x80 {
			return int64(n), nil
		}
	}
}

// cutShort is the error of a delta that ends too early; errors of the reader are returned as they are.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: cut short", ErrCorrupt)
	}
	return err
}

// checkEnd says that a delta goes on after its last block.
func checkEnd(in *bufio.Reader) error {
	switch _, err := in.ReadByte(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: it goes on after its last block", ErrCorrupt)
}
