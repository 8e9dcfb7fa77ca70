package table

import (
	"errors"
	"fmt"

	"github.com/parquet-go/parquet-go"
)

// node is a field of a Parquet schema, with the levels of Dremel's encoding. A value with a definition level below def belongs
// to a field that is missing here or above; a value with a repetition level of rep begins another element here.
type node struct {
	name               string
	optional, repeated bool
	def, rep           int
	// from and to bound the leaf columns below.
	from, to int
	kind     nodeKind
	// fields are the parts of a group; of a list and a map only the repeated field.
	fields []*node
	leaf   func(parquet.Value) (any, error)
}

type nodeKind int

const (
	leafNode nodeKind = iota
	groupNode
	listNode
	mapNode
)

// maxDepth bounds how deep groups are nested.
const maxDepth = 64

// newNode reads a schema.
func newNode(schema *parquet.Schema) (*node, error) {
	root := &node{kind: groupNode}
	column := 0
	for _, f := range schema.Fields() {
		n, err := growNode(f, 0, 0, &column, maxDepth)
		if err != nil {
			return nil, err
		}
		root.fields = append(root.fields, n)
	}
	root.to = column
	return root, nil
}

func growNode(f parquet.Field, def, rep int, column *int, depth int) (*node, error) {
	if depth == 0 {
		return nil, fmt.Errorf("column %s: nested deeper than %d", f.Name(), maxDepth)
	}
	n := &node{name: f.Name(), optional: f.Optional(), repeated: f.Repeated(), from: *column}
	if n.optional || n.repeated {
		def++
	}
	if n.repeated {
		rep++
	}
	n.def, n.rep = def, rep
	if f.Leaf() {
		*column++
		n.to, n.leaf = *column, leafDecoder(f.Type())
		return n, nil
	}
	for _, inner := range f.Fields() {
		child, err := growNode(inner, def, rep, column, depth-1)
		if err != nil {
			return nil, err
		}
		n.fields = append(n.fields, child)
	}
	n.to, n.kind = *column, kindOf(n)
	return n, nil
}

// kindOf recognises a list and a map by their shape, which every writer keeps to whether or not it annotates them.
func kindOf(n *node) nodeKind {
	if len(n.fields) != 1 || !n.fields[0].repeated || n.repeated {
		return groupNode
	}
	inner := n.fields[0]
	if len(inner.fields) == 2 && inner.fields[0].name == "key" && inner.fields[1].name == "value" && inner.fields[0].kind == leafNode && inner.name != "list" {
		return mapNode
	}
	return listNode
}

// readRow makes a row of its values, which come column by column.
func (n *node) readRow(values parquet.Row) (map[string]any, error) {
	columns := make([][]parquet.Value, n.to)
	for _, v := range values {
		c := v.Column()
		if c < 0 || c >= len(columns) {
			return nil, fmt.Errorf("a value of column %d: the schema has %d", c, len(columns))
		}
		columns[c] = append(columns[c], v)
	}
	return n.readGroupFields(columns)
}

// readGroupFields is the fields of an element.
func (n *node) readGroupFields(columns [][]parquet.Value) (map[string]any, error) {
	out := make(map[string]any, len(n.fields))
	for _, f := range n.fields {
		v, err := f.readValue(columns)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		out[f.name] = v
	}
	return out, nil
}

var errValues = errors.New("its columns do not agree on how many values there are")

// readValue is a field of an element of its parent.
func (n *node) readValue(columns [][]parquet.Value) (any, error) {
	if n.from == n.to {
		return nil, nil // a group without fields
	}
	first := columns[n.from]
	if len(first) == 0 {
		return nil, errValues
	}
	switch {
	case n.repeated:
		return n.readElements(columns, n.readPresent)
	case n.optional && first[0].DefinitionLevel() < n.def:
		return nil, nil
	}
	return n.readPresent(columns)
}

// readElements are the elements of a repeated field, each made by one.
func (n *node) readElements(columns [][]parquet.Value, one func([][]parquet.Value) (any, error)) ([]any, error) {
	out := []any{}
	if columns[n.from][0].DefinitionLevel() < n.def {
		return out, nil
	}
	at := make([]int, n.to)
	for at[n.from] < len(columns[n.from]) {
		element := make([][]parquet.Value, n.to)
		for c := n.from; c < n.to; c++ {
			end := at[c] + 1
			for end < len(columns[c]) && columns[c][end].RepetitionLevel() > n.rep {
				end++
			}
			if at[c] >= len(columns[c]) {
				return nil, errValues
			}
			element[c], at[c] = columns[c][at[c]:end], end
		}
		v, err := one(element)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", len(out), err)
		}
		out = append(out, v)
	}
	return out, nil
}

// readPresent is the field itself, where it is there.
func (n *node) readPresent(columns [][]parquet.Value) (any, error) {
	switch n.kind {
	case leafNode:
		if len(columns[n.from]) != 1 {
			return nil, errValues
		}
		return n.leaf(columns[n.from][0])
	case listNode:
		inner := n.fields[0]
		return inner.readElements(columns, func(columns [][]parquet.Value) (any, error) {
			if inner.kind == groupNode && len(inner.fields) == 1 {
				return inner.fields[0].readValue(columns) // list.element, as the format has it
			}
			return inner.readPresent(columns)
		})
	case mapNode:
		return n.readMap(columns)
	}
	return n.readGroupFields(columns)
}

// readMap is a map as an object.
func (n *node) readMap(columns [][]parquet.Value) (any, error) {
	inner := n.fields[0]
	out := map[string]any{}
	_, err := inner.readElements(columns, func(columns [][]parquet.Value) (any, error) {
		key, err := inner.fields[0].readValue(columns)
		if err != nil {
			return nil, err
		}
		value, err := inner.fields[1].readValue(columns)
		out[fmt.Sprint(key)] = value
		return nil, err
	})
	return out, err
}
