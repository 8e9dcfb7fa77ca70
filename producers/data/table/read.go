package table

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// maxRowBytes bounds a row of JSON: hidden tests of programming tasks take megabytes.
const maxRowBytes = 64 << 20

// Rows are the rows of a file, in order. A row with a fault comes as that fault, a *FaultError with At set, and the next row follows;
// any other error is of the whole file, and the last.
func Rows(ctx context.Context, path string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Row{}, err)
			return
		}
		defer func() { _ = file.Close() }() // only read from
		stop := func() bool {
			if ctx.Err() != nil {
				yield(Row{}, context.Cause(ctx))
			}
			return ctx.Err() != nil
		}
		emit := func(r Row, err error) bool { return yield(r, err) && !stop() }
		err = emitRows(path, file, func() error { return context.Cause(ctx) }, emit)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			yield(Row{}, err)
		}
	}
}

// errStopped ends the reading when the reader of the rows has enough.
var errStopped = errors.New("stopped")

// emitRows gives the rows of an open file to emit until that returns false, or stopped an error. The error is of the whole file.
func emitRows(name string, file *os.File, stopped func() error, emit func(Row, error) bool) error {
	fault := func(err error) error {
		if err == nil || errors.Is(err, errStopped) {
			return nil
		}
		return &FaultError{File: name, Err: err}
	}
	head := make([]byte, 4)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return fault(err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fault(err)
	}
	switch head = head[:n]; {
	case string(head) == "PAR1":
		return fault(readParquet(name, file, emit))
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(file)
		if err != nil {
			return fault(err)
		}
		return fault(readJSON(name, &filling{plain, stopped}, emit))
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		plain, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return fault(err)
		}
		defer plain.Close()
		return fault(readJSON(name, &filling{plain, stopped}, emit))
	}
	return fault(readJSON(name, &filling{file, stopped}, emit))
}

// readJSON reads JSON Lines, or an array of objects where the text begins with an array.
func readJSON(name string, r io.Reader, emit func(Row, error) bool) error {
	in := bufio.NewReaderSize(r, 64<<10)
	if mark, err := in.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = in.Discard(3) // the byte order mark that some editors begin a file with
	}
	for at := 0; ; {
		c, err := in.Peek(1)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch c[0] {
		case '[':
			return readArray(name, in, emit)
		case ' ', '\t', '\r', '\n':
			_, _ = in.Discard(1)
			if c[0] == '\n' {
				at++
			}
		default:
			return readLines(name, at, in, emit)
		}
	}
}

// readLines reads an object a line, after so many lines; blank lines are passed over.
func readLines(name string, at int, in io.Reader, emit func(Row, error) bool) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxRowBytes)
	for lines.Scan() {
		at++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if !emitJSON(name, at, line, emit) {
			return errStopped
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than %d bytes: one JSON object a line is wanted", at+1, maxRowBytes)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("after line %d: %w", at, err)
	}
	return nil
}

// filling gives as much as it is asked for, until stopped returns an error. Readers of lines and of JSON look for an end in all that they have
// so far, and ask for twice as much each time: they would look once for each piece that a decompressor gives.
type filling struct {
	io.Reader
	stopped func() error
}

func (f *filling) Read(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		if err = f.stopped(); err == nil {
			var more int
			more, err = f.Reader.Read(p[n:])
			n += more
		}
	}
	return n, err
}

// rationed gives on no more than so many bytes.
type rationed struct {
	io.Reader
	left int
}

// errLong is the fault of a row with too many bytes.
var errLong = fmt.Errorf("it is longer than %d bytes", maxRowBytes)

func (r *rationed) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errLong
	}
	n, err := r.Reader.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// readArray reads a JSON array of objects, a single object at a time.
func readArray(name string, from io.Reader, emit func(Row, error) bool) error {
	in := &rationed{from, maxRowBytes}
	dec := json.NewDecoder(in)
	if _, err := dec.Token(); err != nil {
		return err
	}
	at := 0
	for dec.More() {
		at++
		in.left = maxRowBytes // the bytes that the decoder has read ahead are fewer
		var row json.RawMessage
		if err := dec.Decode(&row); err != nil {
			return fmt.Errorf("row %d: %w", at, tornError(err))
		}
		in.left = maxRowBytes
		if !emitJSON(name, at, row, emit) {
			return errStopped
		}
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("after row %d: %w", at, tornError(err))
	}
	return nil
}

func tornError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("the text ends within its JSON")
	}
	return err
}

// emitJSON hands an object on.
func emitJSON(name string, at int, text []byte, emit func(Row, error) bool) bool {
	fields, err := Object(text)
	if err != nil {
		return emit(Row{}, &FaultError{File: name, At: at, Err: err})
	}
	return emit(Row{At: at, Fields: fields}, nil)
}

// Object reads a JSON object, its numbers as json.Number.
func Object(text []byte) (map[string]any, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("not UTF-8 text")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, fmt.Errorf("not JSON: %w", tornError(err))
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: want an object", Kind(value))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return fields, nil
}
