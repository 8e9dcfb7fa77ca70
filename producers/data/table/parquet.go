package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// Bounds on the numbers in a Parquet file's description of itself. A reader allocates by these numbers before it has seen a
// value.
const (
	// maxGroupBytes bounds a row group as it is without compression, maxGroupRows its rows.
	maxGroupBytes = 8 << 30
	maxGroupRows  = 1 << 28
	// readAtOnce is how many rows are held at a time.
	readAtOnce = 64
)

// guardPanic calls fn and makes an error of its panic: parquet-go panics on files that are malformed, in the goroutine that reads.
func guardPanic(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a malformed Parquet file: %v", p)
		}
	}()
	return fn()
}

// readParquet hands the rows of a Parquet file on, row group after row group.
func readParquet(name string, file *os.File, emit func(Row, error) bool) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var pf *parquet.File
	var root *node
	if err := checkFooter(file, info.Size()); err != nil {
		return err
	}
	err = guardPanic(func() (err error) {
		pf, err = parquet.OpenFile(file, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		if err != nil {
			return fmt.Errorf("not a readable Parquet file: %w", err)
		}
		if root, err = newNode(pf.Schema()); err != nil {
			return err
		}
		return checkSound(pf, info.Size())
	})
	if err != nil {
		return err
	}
	at := 0
	for _, group := range pf.RowGroups() {
		if at, err = readGroup(name, group, root, at, emit); err != nil {
			return err
		}
	}
	return nil
}

// checkFooter refuses a file whose end cannot be a Parquet file's: its reader allocates as the last bytes ask for, before it
// looks whether the file has as much.
func checkFooter(file io.ReaderAt, size int64) error {
	const around = 12 // the magic bytes at both ends, and the footer's length
	end := make([]byte, 8)
	if size < around {
		return errors.New("not a readable Parquet file: it is too short")
	}
	if _, err := file.ReadAt(end, size-8); err != nil {
		return err
	}
	if n := int64(binary.LittleEndian.Uint32(end)); string(end[4:]) != "PAR1" || n > size-around {
		return errors.New("not a readable Parquet file: its end is missing or spoilt")
	}
	return nil
}

// checkSound refuses a footer that no valid file can have.
func checkSound(pf *parquet.File, size int64) error {
	for g, group := range pf.Metadata().RowGroups {
		if group.NumRows < 0 || group.NumRows > maxGroupRows {
			return fmt.Errorf("row group %d: %d rows: must be between 0 and %d", g, group.NumRows, maxGroupRows)
		}
		sum := int64(0)
		for c := range group.Columns {
			m := &group.Columns[c].MetaData
			if m.Codec == format.Lz4 || m.Codec == format.Lz4Raw {
				// The decoder doubles its buffer until the data fits, without end where it is no LZ4: that ends the process.
				return fmt.Errorf("row group %d, column %d: compressed by LZ4, which is not read: write the file with zstd, snappy or gzip", g, c)
			}
			from := m.DataPageOffset
			if m.DictionaryPageOffset > 0 {
				from = min(from, m.DictionaryPageOffset)
			}
			if from < 0 || m.TotalCompressedSize < 0 || from > size || m.TotalCompressedSize > size-from {
				return fmt.Errorf("row group %d, column %d: %d bytes at %d: the file has %d", g, c, m.TotalCompressedSize, from, size)
			}
			if m.NumValues < 0 || m.TotalUncompressedSize < 0 || m.TotalUncompressedSize > maxGroupBytes-sum {
				return fmt.Errorf("row group %d, column %d: %d bytes, %d values: a row group may have %d bytes", g, c,
					m.TotalUncompressedSize, m.NumValues, int64(maxGroupBytes))
			}
			sum += m.TotalUncompressedSize
		}
	}
	return nil
}

// readGroup hands the rows of a row group on, and returns the number of the last.
func readGroup(name string, group parquet.RowGroup, root *node, at int, emit func(Row, error) bool) (int, error) {
	var rows parquet.Rows
	err := guardPanic(func() error {
		rows = group.Rows()
		return nil
	})
	if err != nil {
		return at, err
	}
	defer func() { _ = guardPanic(rows.Close) }() // the file's fault was reported already
	left := group.NumRows()
	raw := make([]parquet.Row, readAtOnce)
	for {
		n, end := 0, false
		var made []Row
		var faults []error
		err := guardPanic(func() (err error) {
			n, err = rows.ReadRows(raw)
			if end = errors.Is(err, io.EOF); err != nil && !end {
				return fmt.Errorf("after row %d: %w", at, err)
			}
			if int64(n) > left {
				return fmt.Errorf("a row group of %d rows has more", group.NumRows())
			}
			for i, values := range raw[:n] {
				fields, err := root.readRow(values)
				made, faults = append(made, Row{At: at + i + 1, Fields: fields}), append(faults, err)
			}
			return nil
		})
		for i, row := range made {
			if fault := faults[i]; fault != nil {
				row, fault = Row{}, &FaultError{File: name, At: at + i + 1, Err: fault}
				if !emit(row, fault) {
					return at, errStopped
				}
				continue
			}
			if !emit(row, nil) {
				return at, errStopped
			}
		}
		at, left = at+n, left-int64(n)
		switch {
		case err != nil:
			return at, err
		case end && left > 0:
			return at, fmt.Errorf("after row %d: the row group ends %d rows early", at, left)
		case end, n == 0 && left == 0:
			return at, nil
		case n == 0:
			return at, fmt.Errorf("after row %d: the reader gives no more rows, and %d are missing", at, left)
		}
	}
}
