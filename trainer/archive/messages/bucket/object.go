package bucket

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/minio/minio-go/v7"
)

const (
	// endBytes are read when an object is opened: a footer, and the index of all but large segments.
	endBytes = 64 << 10
	// aheadBytes are read at once where ranges follow each other.
	aheadBytes = 2 << 20
)

// object is an object that is being read.
type object struct {
	bucket *Bucket
	name   string
	size   int64
	etag   string

	mu sync.Mutex
	// end and ahead are ranges that were read; next is where the newest read that was asked for ended.
	end, ahead part
	next       int64
}

// part is a range of an object.
type part struct {
	at   int64
	data []byte
}

// slice returns n bytes from at on; nil where the part lacks some.
func (p part) slice(at int64, n int) []byte {
	if at < p.at || at+int64(n) > p.at+int64(len(p.data)) {
		return nil
	}
	return p.data[at-p.at:][:n]
}

// readEnd reads the end of the object, and learns its size.
func (o *object) readEnd() error {
	data, at, size, etag, err := o.bucket.getRange(o.name, "", 0, -endBytes, endBytes)
	var refused minio.ErrorResponse
	if errors.As(err, &refused) && refused.Code == minio.InvalidRange {
		return o.readWhole()
	}
	if err != nil {
		return err
	}
	if at+int64(len(data)) != size {
		err := fmt.Errorf("the last %d bytes of %d were asked for, and the answer has those from %d", endBytes, size, at)
		return o.bucket.explain("read", o.name, err)
	}
	o.end, o.size, o.etag = part{at, data}, size, etag
	return nil
}

// readWhole reads an object that has fewer bytes than its end would have: some stores refuse the range of the last bytes then.
func (o *object) readWhole() error {
	size, err := o.bucket.statSize(o.name)
	if err != nil || size == 0 {
		return err
	}
	if size > endBytes {
		return o.bucket.explain("read", o.name, fmt.Errorf("the range of the last %d bytes of %d was refused", endBytes, size))
	}
	data, at, _, etag, err := o.bucket.getRange(o.name, "", 0, size-1, size)
	if err == nil && (at != 0 || int64(len(data)) != size) {
		err = o.bucket.explain("read", o.name, fmt.Errorf("%d bytes were asked for, and the answer has %d", size, len(data)))
	}
	o.end, o.size, o.etag = part{0, data}, size, etag
	return err
}

// Size is the object's.
func (o *object) Size() int64 { return o.size }

// ReadAt reads a range: from the bytes that were read already, else by a request.
func (o *object) ReadAt(p []byte, at int64) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at < 0 {
		return 0, fs.ErrInvalid
	}
	n := int(max(0, min(int64(len(p)), o.size-at)))
	var end error
	if n < len(p) {
		end = io.EOF
	}
	if n == 0 {
		return 0, end
	}
	found := o.end.slice(at, n)
	if found == nil {
		found = o.ahead.slice(at, n)
	}
	if found == nil {
		want := int64(n)
		if at == o.next {
			want = min(max(want, aheadBytes), o.size-at)
		}
		data, from, _, _, err := o.bucket.getRange(o.name, o.etag, at, at+want-1, want)
		if err != nil {
			return 0, err
		}
		if from != at || int64(len(data)) != want {
			err := fmt.Errorf("%d bytes from %d were asked for, and the answer has %d from %d", want, at, len(data), from)
			return 0, o.bucket.explain("read", o.name, err)
		}
		o.ahead = part{at, data}
		found = data[:n]
	}
	o.next = at + int64(n)
	return copy(p, found), end
}

// Close frees memory.
func (o *object) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end, o.ahead = part{}, part{}
	return nil
}
