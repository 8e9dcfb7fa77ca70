package messages

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rl/weir/schemas"
)

// Message is a message of the stream.
type Message struct {
	// Sequence in the stream; of a message in parts that of its first part.
	Sequence uint64
	Subject  string
	// At is when the broker stored it.
	At time.Time
	// Data is the message as it was published, its parts joined.
	Data []byte
}

// Index says what a segment holds.
type Index struct {
	// Format is that of the segment.
	Format int    `json:"format"`
	Run    string `json:"run"`
	// Owner is the run's id: see [Owner]. "" in segments of a build without ids.
	Owner string `json:"owner,omitempty"`
	Life
	Span
	// Follows is the last sequence of the segment before, 0 where there was none. Where it is below After the sequences between were
	// purged before they were kept.
	Follows uint64  `json:"follows"`
	Blocks  []Block `json:"blocks"`
	Entries []Entry `json:"entries"`
}

// Block is a zstd frame of a segment.
type Block struct {
	// At and Size are its place in the segment, Raw its size once decompressed, in bytes.
	At   int64 `json:"at"`
	Size int64 `json:"size"`
	Raw  int64 `json:"raw"`
	// SHA256 is that of the frame, in hex.
	SHA256 string `json:"sha256"`
}

// Entry is a message of a segment.
type Entry struct {
	Sequence uint64 `json:"seq"`
	Subject  string `json:"subject"`
	// Stored is when the broker stored the message, in nanoseconds since 1970.
	Stored int64 `json:"stored"`
	// Kind is that of the message, ID a trajectory's; "" where the message cannot be read.
	Kind schemas.Kind `json:"kind,omitempty"`
	ID   string       `json:"id,omitempty"`
	// Block has the message's bytes, from At on.
	Block int `json:"block"`
	At    int `json:"at"`
	Size  int `json:"size"`
}

const (
	segmentFormat = 1
	magicBegin    = "WEIRSEG1"
	magicEnd      = "WEIREND1"
	footerSize    = 8 + 8 + sha256.Size + len(magicEnd)
	// blockBytes is the size of a block from which on the next message begins another, before it is compressed.
	blockBytes = 256 << 10
	// maxBlock and maxIndex bound a block and an index once decompressed.
	maxBlock = 1 << 30
	maxIndex = 256 << 20
)

// segmentWriter gathers the messages of a segment.
type segmentWriter struct {
	index   Index
	out     []byte
	raw     []byte
	encoder *zstd.Encoder
}

func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlock))
}

func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
}

// addMessage adds the next message.
func (w *segmentWriter) addMessage(m Message) {
	if len(w.out) == 0 {
		w.out = append(w.out, magicBegin...)
	}
	if len(w.raw) >= blockBytes {
		w.endBlock()
	}
	kind, id := identifyMessage(m.Data)
	w.index.Entries = append(w.index.Entries, Entry{
		Sequence: m.Sequence, Subject: m.Subject, Stored: m.At.UnixNano(), Kind: kind, ID: id,
		Block: len(w.index.Blocks), At: len(w.raw), Size: len(m.Data),
	})
	w.raw = append(w.raw, m.Data...)
}

// identifyMessage returns the kind of a message, and the id of a trajectory.
func identifyMessage(data []byte) (schemas.Kind, string) {
	kind, _, err := schemas.Peek(data)
	if err != nil {
		return "", ""
	}
	if kind != schemas.KindTrajectory {
		return kind, ""
	}
	var t schemas.Trajectory
	if schemas.Unmarshal(data, &t) != nil {
		return "", ""
	}
	return kind, t.ID
}

func (w *segmentWriter) endBlock() {
	frame := w.encoder.EncodeAll(w.raw, nil)
	w.addBlock(frame, int64(len(w.raw)))
	w.raw = w.raw[:0]
}

func (w *segmentWriter) addBlock(frame []byte, raw int64) {
	w.index.Blocks = append(w.index.Blocks, Block{At: int64(len(w.out)), Size: int64(len(frame)), Raw: raw, SHA256: hexHash(frame)})
	w.out = append(w.out, frame...)
}

// finishSegment returns the whole segment.
func (w *segmentWriter) finishSegment() ([]byte, error) {
	if len(w.out) == 0 {
		w.out = append(w.out, magicBegin...)
	}
	if len(w.raw) > 0 {
		w.endBlock()
	}
	w.index.Format = segmentFormat
	index, err := json.Marshal(&w.index)
	if err != nil {
		return nil, fmt.Errorf("encode the index of a segment: %w", err)
	}
	index = w.encoder.EncodeAll(index, nil)
	hash := sha256.Sum256(index)
	at := uint64(len(w.out))
	w.out = append(w.out, index...)
	w.out = binary.LittleEndian.AppendUint64(w.out, at)
	w.out = binary.LittleEndian.AppendUint64(w.out, uint64(len(index)))
	w.out = append(w.out, hash[:]...)
	return append(w.out, magicEnd...), nil
}

func hexHash(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

// Damage is a segment that is not as it was written, or is missing.
type Damage struct { //nolint:errname // it is a finding first, as checkpoint.Damage is
	// Segment is its name.
	Segment    string
	Want, Have string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%s: want %s, have %s", d.Segment, d.Want, d.Have)
}

// segmentReader reads a segment.
type segmentReader struct {
	name  string
	blob  Blob
	index *Index
	// indexAt is where the index begins.
	indexAt int64
	decoder *zstd.Decoder
}

func (r *segmentReader) damageOf(want, format string, args ...any) error {
	return &Damage{r.name, want, fmt.Sprintf(format, args...)}
}

// openReader reads a segment's footer and index. The caller closes the blob.
func openReader(name string, blob Blob, decoder *zstd.Decoder) (*segmentReader, error) {
	r := &segmentReader{name: name, blob: blob, decoder: decoder}
	size := blob.Size()
	if size < int64(len(magicBegin)+footerSize) {
		return nil, r.damageOf("a segment", "%d bytes", size)
	}
	footer, err := r.readBytes(size-int64(footerSize), int64(footerSize))
	if err != nil {
		return nil, err
	}
	at, n := binary.LittleEndian.Uint64(footer), binary.LittleEndian.Uint64(footer[8:])
	room := uint64(size) - uint64(footerSize)
	if string(footer[16+sha256.Size:]) != magicEnd || at < uint64(len(magicBegin)) || at > room || n != room-at || n > maxIndex {
		return nil, r.damageOf("a segment's footer", "%x", footer)
	}
	frame, err := r.readBytes(int64(at), int64(n))
	if err != nil {
		return nil, err
	}
	if have, want := sha256.Sum256(frame), footer[16:16+sha256.Size]; !bytes.Equal(have[:], want) {
		return nil, r.damageOf(fmt.Sprintf("an index of SHA-256 %x", want), "SHA-256 %x", have)
	}
	data, err := r.decoder.DecodeAll(frame, nil)
	if err != nil {
		return nil, r.damageOf("an index", "%v", err)
	}
	r.index, r.indexAt = new(Index), int64(at)
	if err := json.Unmarshal(data, r.index); err != nil {
		return nil, r.damageOf("an index", "%v", err)
	}
	return r, r.checkIndex()
}

// checkIndex makes sure that the index has no place outside the segment.
func (r *segmentReader) checkIndex() error {
	x := r.index
	if x.Format != segmentFormat {
		return r.damageOf(fmt.Sprintf("format %d", segmentFormat), "format %d: of another build", x.Format)
	}
	end := int64(len(magicBegin))
	for i, b := range x.Blocks {
		if b.At != end || b.Size < 0 || b.Size > r.indexAt-end || b.Raw < 0 || b.Raw > maxBlock {
			return r.damageOf("blocks one after the other", "block %d at %d, %d bytes", i, b.At, b.Size)
		}
		end += b.Size
	}
	if end != r.indexAt {
		return r.damageOf(fmt.Sprintf("blocks up to %d", r.indexAt), "blocks up to %d", end)
	}
	for i, e := range x.Entries {
		if e.Block < 0 || e.Block >= len(x.Blocks) || e.At < 0 || e.Size < 0 {
			return r.damageOf("messages within blocks", "message %d at %d of block %d, %d bytes", i, e.At, e.Block, e.Size)
		}
		if raw := x.Blocks[e.Block].Raw; int64(e.At) > raw || int64(e.Size) > raw-int64(e.At) {
			return r.damageOf("messages within blocks", "message %d at %d of block %d, %d bytes", i, e.At, e.Block, e.Size)
		}
	}
	return nil
}

func (r *segmentReader) readBytes(at, n int64) ([]byte, error) {
	data := make([]byte, n)
	if _, err := r.blob.ReadAt(data, at); err != nil && (err != io.EOF || n > 0) { //nolint:errorlint // io.ReaderAt returns it bare
		return nil, fmt.Errorf("read %s: %w", r.name, err)
	}
	return data, nil
}

// readFrame reads a block as it is stored, and compares it with its hash.
func (r *segmentReader) readFrame(number int) ([]byte, error) {
	b := r.index.Blocks[number]
	frame, err := r.readBytes(b.At, b.Size)
	if err != nil {
		return nil, err
	}
	if have := hexHash(frame); have != b.SHA256 {
		return nil, r.damageOf(fmt.Sprintf("block %d of SHA-256 %s", number, b.SHA256), "SHA-256 %s", have)
	}
	return frame, nil
}

// readBlock reads the messages of a block.
func (r *segmentReader) readBlock(number int) ([]byte, error) {
	frame, err := r.readFrame(number)
	if err != nil {
		return nil, err
	}
	raw := r.index.Blocks[number].Raw
	data, err := r.decoder.DecodeAll(frame, nil)
	if err != nil || int64(len(data)) != raw {
		return nil, r.damageOf(fmt.Sprintf("block %d of %d bytes", number, raw), "%d bytes, %v", len(data), err)
	}
	return data, nil
}

// message is the message of an entry, in the block that has it.
func (e *Entry) message(block []byte) Message {
	return Message{Sequence: e.Sequence, Subject: e.Subject, At: time.Unix(0, e.Stored).UTC(), Data: block[e.At : e.At+e.Size]}
}

// verifySegment reads every byte, and compares the index with the segment's name.
func (r *segmentReader) verifySegment(p place) error {
	begin, err := r.readBytes(0, int64(len(magicBegin)))
	if err != nil {
		return err
	}
	if string(begin) != magicBegin {
		return r.damageOf(magicBegin, "%q", begin)
	}
	x := r.index
	if have := x.placeOf(x.Span); have != p {
		return r.damageOf("an index of "+r.name, "that of %s", have.segmentName())
	}
	for i := range x.Blocks {
		if _, err := r.readFrame(i); err != nil {
			return err
		}
	}
	return nil
}
