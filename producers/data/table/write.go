package table

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// Write writes rows to a file in the format of its ending, .jsonl or .parquet, and puts the file in its place when it is whole.
// A file that is there is refused.
func Write(path string, rows []map[string]any) error {
	var write func(io.Writer, []map[string]any) error
	switch strings.ToLower(filepath.Ext(path)) {
	case ".jsonl":
		write = WriteJSONL
	case ".parquet":
		write = WriteParquet
	default:
		return fmt.Errorf("write %s: the ending says what is written: want .jsonl or .parquet", path)
	}
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("write %s: it is there already: remove it, or name another", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".weir-data-*")
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(file, 1<<20)
	err = errors.Join(write(out, rows), out.Flush(), file.Chmod(0o644), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(file.Name()))
	}
	return nil
}

// WriteJSONL writes an object a line.
func WriteJSONL(w io.Writer, rows []map[string]any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i, row := range rows {
		if err := enc.Encode(row); err != nil {
			return fmt.Errorf("row %d: %w", i+1, err)
		}
	}
	return nil
}

// rowsPerGroup bounds the rows of a row group, so that a reader needs to hold few.
const rowsPerGroup = 10_000

// WriteParquet writes rows in a schema that is found from them. A column is of texts, truth values, whole numbers, numbers,
// lists or objects, and may be missing anywhere. A column whose values are of several kinds is refused, by its path.
func WriteParquet(w io.Writer, rows []map[string]any) error {
	root, err := inferShape(rows)
	if err != nil {
		return err
	}
	return guardPanic(func() error {
		schema := parquet.NewSchema("rows", root.parquetNode().(parquet.Group))
		out := parquet.NewGenericWriter[any](w, schema, parquet.Compression(&zstd.Codec{}), parquet.MaxRowsPerRowGroup(rowsPerGroup))
		shredder := newShredder(root)
		for i, row := range rows {
			values, err := shredder.shredRow(row)
			if err != nil {
				return fmt.Errorf("row %d: %w", i+1, err)
			}
			if _, err := out.WriteRows([]parquet.Row{values}); err != nil {
				return fmt.Errorf("row %d: %w", i+1, err)
			}
		}
		return out.Close()
	})
}
