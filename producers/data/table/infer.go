package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/parquet-go/parquet-go"
)

// shape is the type of a column's values. The zero value is the shape of a column that is always null.
type shape struct {
	kind shapeKind
	// element is a list's, fields are an object's.
	element *shape
	fields  map[string]*shape
}

type shapeKind int

const (
	ofNothing shapeKind = iota
	ofTexts
	ofBytes
	ofTruth
	ofWhole
	ofNumbers
	ofLists
	ofObjects
)

var shapeNames = map[shapeKind]string{
	ofTexts: "text", ofBytes: "bytes", ofTruth: "true or false", ofWhole: "a whole number", ofNumbers: "a number", ofLists: "a list", ofObjects: "an object",
}

// inferShape finds the shape of rows.
func inferShape(rows []map[string]any) (*shape, error) {
	root := &shape{kind: ofObjects, fields: map[string]*shape{}}
	for i, row := range rows {
		if err := root.widenShape(row); err != nil {
			return nil, fmt.Errorf("row %d: %w", i+1, err)
		}
	}
	root.pruneEmpty()
	if len(root.fields) == 0 {
		return nil, errors.New("there is no column to write")
	}
	return root, nil
}

// widenShape widens a shape until a value fits.
func (s *shape) widenShape(v any) error {
	kind := kindOfValue(v)
	switch {
	case kind == ofNothing:
		return nil
	case s.kind == ofNothing, s.kind == ofWhole && kind == ofNumbers:
		s.kind = kind
	case s.kind == ofNumbers && kind == ofWhole:
	case s.kind != kind:
		return fmt.Errorf("%s, where rows before have %s: a column of Parquet has values of one kind", shapeNames[kind], shapeNames[s.kind])
	}
	switch v := v.(type) {
	case []any:
		if s.element == nil {
			s.element = &shape{}
		}
		for i, e := range v {
			if err := s.element.widenShape(e); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	case map[string]any:
		if s.fields == nil {
			s.fields = map[string]*shape{}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if s.fields[name] == nil {
				s.fields[name] = &shape{}
			}
			if err := s.fields[name].widenShape(v[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func kindOfValue(v any) shapeKind {
	switch v := v.(type) {
	case string:
		return ofTexts
	case []byte:
		return ofBytes
	case bool:
		return ofTruth
	case json.Number:
		if _, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return ofWhole
		}
		return ofNumbers
	case []any:
		return ofLists
	case map[string]any:
		return ofObjects
	}
	return ofNothing
}

// pruneEmpty leaves out objects without a field, which Parquet lacks, and reads a column that is always null as texts.
func (s *shape) pruneEmpty() (keep bool) {
	switch s.kind {
	case ofNothing:
		s.kind = ofTexts
	case ofLists:
		return s.element == nil || s.element.pruneEmpty()
	case ofObjects:
		maps.DeleteFunc(s.fields, func(_ string, f *shape) bool { return !f.pruneEmpty() })
		return len(s.fields) > 0
	}
	return true
}

// parquetNode is the shape as a schema: everything but the row itself may be missing.
func (s *shape) parquetNode() parquet.Node {
	switch s.kind {
	case ofTruth:
		return parquet.Leaf(parquet.BooleanType)
	case ofWhole:
		return parquet.Int(64)
	case ofNumbers:
		return parquet.Leaf(parquet.DoubleType)
	case ofBytes:
		return parquet.Leaf(parquet.ByteArrayType)
	case ofLists:
		if s.element == nil {
			s.element = &shape{kind: ofTexts}
		}
		return parquet.List(parquet.Optional(s.element.parquetNode()))
	case ofObjects:
		group := parquet.Group{}
		for name, f := range s.fields {
			group[name] = parquet.Optional(f.parquetNode())
		}
		return group
	}
	return parquet.String()
}

// shredder writes rows as the values of Dremel's encoding, column by column.
type shredder struct {
	root    *shape
	columns int
}

func newShredder(root *shape) *shredder { return &shredder{root, root.countLeaves()} }

// countLeaves counts the leaf columns of a shape.
func (s *shape) countLeaves() int {
	switch s.kind {
	case ofLists:
		return s.element.countLeaves()
	case ofObjects:
		n := 0
		for _, f := range s.fields {
			n += f.countLeaves()
		}
		return n
	}
	return 1
}

// shredRow writes a row.
func (s *shredder) shredRow(fields map[string]any) (parquet.Row, error) {
	columns := make([][]parquet.Value, s.columns)
	if err := s.root.shredObject(fields, columns, 0, 0, 0, 0); err != nil {
		return nil, err
	}
	return parquet.MakeRow(columns...), nil
}

// shredObject writes the fields of an object, which are all optional. column is its first column; rep and def are the levels of
// the first value, lists is the number of lists around it.
func (s *shape) shredObject(v map[string]any, columns [][]parquet.Value, column, rep, def, lists int) error {
	for _, name := range slices.Sorted(maps.Keys(s.fields)) { // as a parquet.Group has them
		f := s.fields[name]
		if err := f.shredOptional(v[name], columns, column, rep, def, lists); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		column += f.countLeaves()
	}
	return nil
}

// shredOptional writes a value that may be missing: then every column below is missing too.
func (s *shape) shredOptional(v any, columns [][]parquet.Value, column, rep, def, lists int) error {
	if kindOfValue(v) == ofNothing {
		s.shredMissing(columns, column, rep, def)
		return nil
	}
	def++
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			s.shredMissing(columns, column, rep, def)
			return nil
		}
		lists++
		for i, e := range v {
			if i > 0 {
				rep = lists
			}
			if err := s.element.shredOptional(e, columns, column, rep, def+1, lists); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	case map[string]any:
		return s.shredObject(v, columns, column, rep, def, lists)
	}
	leaf, err := s.leafValue(v)
	columns[column] = append(columns[column], leaf.Level(rep, def, column))
	return err
}

func (s *shape) shredMissing(columns [][]parquet.Value, column, rep, def int) {
	for c := column; c < column+s.countLeaves(); c++ {
		columns[c] = append(columns[c], parquet.NullValue().Level(rep, def, c))
	}
}

// leafValue is a value of the column's type.
func (s *shape) leafValue(v any) (parquet.Value, error) {
	switch v := v.(type) {
	case string:
		return parquet.ByteArrayValue([]byte(v)), nil
	case []byte:
		return parquet.ByteArrayValue(v), nil
	case bool:
		return parquet.BooleanValue(v), nil
	case json.Number:
		if s.kind == ofWhole {
			n, err := v.Int64()
			return parquet.Int64Value(n), err
		}
		x, err := v.Float64()
		if err == nil && math.IsInf(x, 0) {
			err = errors.New("beyond the range of a number")
		}
		return parquet.DoubleValue(x), err
	}
	return parquet.Value{}, fmt.Errorf("%s cannot be written", Kind(v))
}
