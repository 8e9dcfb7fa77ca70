package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// mostBeginning is how many bytes of a file's start are compared: lines of metrics, of the archive and of the record of steps have their
// time, their sequence number or the time of their stream within it.
const mostBeginning = 1 << 10

// Beginning is the start of a file that only grows. A run whose folder was removed and made again has other files in the same places:
// neither sizes nor numbers on disk tell, since a file system gives the number of a removed file to the next. The zero value has
// read nothing.
type Beginning []byte

// Changed reports whether a file begins otherwise than the file of the call before, or is shorter than its start, and remembers how the
// file begins now.
func (b *Beginning) Changed(file io.ReaderAt) (bool, error) {
	now := make([]byte, mostBeginning)
	n, err := file.ReadAt(now, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read a file's beginning: %w", err)
	}
	changed := !bytes.HasPrefix(now[:n], *b)
	*b = now[:n]
	return changed, nil
}
