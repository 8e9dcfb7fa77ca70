package weights

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
)

// Blob is the bytes of a shard. It is read in pieces, and where need be more than once.
type Blob interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Bytes is a Blob over memory, which nobody writes to.
func Bytes(data []byte) Blob { return &memory{bytes.NewReader(data), data} }

type memory struct {
	*bytes.Reader
	data []byte
}

func (*memory) Close() error { return nil }

// OpenBlob is a Blob over a file.
func OpenBlob(path string) (Blob, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &file{f, info.Size()}, nil
}

type file struct {
	*os.File
	size int64
}

func (f *file) Size() int64 { return f.size }

// ShardSource opens the i-th whole shard of a version, whose bytes nobody changes. It may be called again for a shard, and for
// several shards at once.
type ShardSource func(i int) (Blob, error)

// FileSource is the ShardSource of files.
func FileSource(paths []string) ShardSource {
	return func(i int) (Blob, error) { return OpenBlob(paths[i]) }
}

// pieceBytes is how much of a shard is in memory at once where it is read or written on its own.
const pieceBytes = 1 << 18

// readerOf reads a blob from its beginning until ctx ends.
func readerOf(ctx context.Context, b Blob) io.Reader {
	return withContext(ctx, io.NewSectionReader(b, 0, b.Size()))
}

// withContext is a reader that fails when ctx has ended.
func withContext(ctx context.Context, r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		return r.Read(p)
	})
}

// readFunc is a function as an io.Reader.
type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// copyPieces copies until r ends, a piece at a time: io.Copy would hand over to a file's own way, which does not see ctx.
func copyPieces(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(writeOnly{w}, r, make([]byte, pieceBytes))
}

type writeOnly struct{ io.Writer }

// hashOf is a blob's content hash, as schemas.ContentHash gives it.
func hashOf(ctx context.Context, b Blob) (string, error) {
	h := sha256.New()
	n, err := copyPieces(h, readerOf(ctx, b))
	if err != nil {
		return "", err
	}
	if n != b.Size() {
		return "", io.ErrUnexpectedEOF // it was cut while it was read
	}
	return hexSum(h), nil
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// bytesOf is a blob's bytes, which may be shared with it.
func bytesOf(ctx context.Context, b Blob) ([]byte, error) {
	if m, ok := b.(*memory); ok {
		return m.data, nil
	}
	data := make([]byte, b.Size())
	_, err := io.ReadFull(readerOf(ctx, b), data)
	return data, err
}

// sink takes a stored shard's bytes in order. restartShard forgets the bytes so far: the shard is read from its beginning again.
type sink interface {
	io.Writer
	restartShard() error
	// sum is the content hash of the bytes since the last restart.
	contentHash() string
}

// inMemory is a sink that keeps the bytes.
type inMemory struct{ data []byte }

func (m *inMemory) Write(p []byte) (int, error) {
	m.data = append(m.data, p...)
	return len(p), nil
}

func (m *inMemory) restartShard() error {
	m.data = m.data[:0]
	return nil
}

func (m *inMemory) contentHash() string {
	h := sha256.Sum256(m.data)
	return hex.EncodeToString(h[:])
}

// inFile is a sink that writes a file and hashes its bytes.
type inFile struct {
	f *os.File
	h hash.Hash
}

func newInFile(f *os.File) *inFile { return &inFile{f, sha256.New()} }

func (t *inFile) Write(p []byte) (int, error) {
	n, err := t.f.Write(p)
	t.h.Write(p[:n])
	return n, err
}

func (t *inFile) restartShard() error {
	t.h.Reset()
	_, err := t.f.Seek(0, io.SeekStart)
	return errors.Join(err, t.f.Truncate(0))
}

func (t *inFile) contentHash() string { return hexSum(t.h) }
