package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

// functions gives the cells of an episode rule, turn and row, and count where they are single calls; and the colours as values.
type functions struct {
	colours map[string]any
	plain   bool
}

// Open makes the functions of an episode.
func (f functions) Open(s producers.Session) (tasks.Functions, error) {
	e := &episode{colours: f.colours, plain: f.plain}
	if err := json.Unmarshal(s.World, &e.book); err != nil {
		return nil, fmt.Errorf("read the world of the prompt: %w", err)
	}
	return e, nil
}

// episode is an open ledger.
type episode struct {
	book    book
	colours map[string]any
	plain   bool
	page    int // the next
	ruled   bool
	total   int64 // of the rows that were counted
}

// The functions.
const (
	turnName  = "turn"
	rowName   = "row"
	ruleName  = "rule"
	countName = "count"
)

// Names are the functions' names.
func (e *episode) Names() []string {
	if e.plain {
		return []string{turnName, ruleName, rowName, countName}
	}
	return []string{turnName, ruleName, rowName}
}

// Values are the colours, each its own name.
func (e *episode) Values() map[string]any { return e.colours }

// Call shows the next page, or the rule, each once; or returns the value of a row of the open page, or the sum of the rows
// that were counted.
func (e *episode) Call(_ context.Context, name string, args []any) (any, error) {
	switch name {
	case rowName:
		return e.readRow(args)
	case countName:
		return e.countRow(args)
	}
	if len(args) > 0 {
		return nil, errors.New("takes no arguments")
	}
	if name == ruleName {
		if e.ruled {
			return tasks.Printed("the rule was said ."), nil
		}
		e.ruled = true
		return tasks.Printed(ruleText(e.book.Rule)), nil
	}
	if e.page == len(e.book.Pages) {
		return tasks.Printed(noMore), nil
	}
	e.page++
	return tasks.Printed(pageText(e.book.Pages[e.page-1])), nil
}

// countRow adds a row of the open page to the sum, and returns the sum.
func (e *episode) countRow(args []any) (any, error) {
	worth, err := e.readRow(args)
	if err != nil {
		return nil, err
	}
	e.total += worth.(int64)
	return e.total, nil
}

func (e *episode) readRow(args []any) (any, error) {
	if e.page == 0 {
		return nil, errors.New("no page is open")
	}
	if len(args) == 1 {
		for _, entry := range e.book.Pages[e.page-1] {
			if entry.Colour == args[0] {
				return int64(entry.N * entry.M), nil
			}
		}
	}
	return nil, errors.New("no such colour")
}
