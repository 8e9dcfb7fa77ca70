package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

// functions gives the cells of an episode the functions of its question, and help, which may tell nothing.
type functions struct{ help bool }

// Open makes the functions of an episode.
func (f functions) Open(s producers.Session) (tasks.Functions, error) {
	var w world
	if err := json.Unmarshal(s.World, &w); err != nil {
		return nil, fmt.Errorf("read the world of the prompt: %w", err)
	}
	e := &episode{helps: f.help, world: w, named: map[string]signature{}, returned: map[string]map[int64]bool{}}
	for _, f := range w.Functions {
		e.named[f.Name] = f
		e.returned[f.Name] = map[int64]bool{}
	}
	return e, nil
}

// episode is the functions of a question.
type episode struct {
	helps bool
	world world
	named map[string]signature
	// returned is each function's result, which it takes once more.
	returned map[string]map[int64]bool
}

// Names are help and the functions' names.
func (e *episode) Names() []string {
	out := []string{helpName}
	for _, f := range e.world.Functions {
		out = append(out, f.Name)
	}
	return out
}

const helpName = "help"

// Values are the words that functions take, and the names of the functions, by which help is asked.
func (e *episode) Values() map[string]any {
	out := map[string]any{}
	for _, word := range materials {
		out[word] = word
	}
	return out
}

// Call calls a function. A call that is not as the signature says fails: it says so, and no value.
func (e *episode) Call(_ context.Context, name string, args []any) (any, error) {
	if name == helpName {
		return e.showHelp(args)
	}
	f := e.named[name]
	wrong := errors.New("takes other arguments")
	switch len(args) {
	case 1:
		result, ok := args[0].(int64)
		if !ok || !f.Twice || !e.returned[name][result] {
			return nil, wrong
		}
		return hashAgain(e.world.Key, name, result), nil
	case 3:
		a, isA := args[0].(int64)
		b, isB := args[1].(int64)
		if word, ok := args[2].(string); !isA || !isB || !ok || word != f.Word {
			return nil, wrong
		}
		if f.Swapped {
			a, b = b, a
		}
		// Numbers in the wrong order are not told from right ones: the value is another.
		v := hashOperation(e.world.Key, name, a, b)
		e.returned[name][v] = true
		return v, nil
	}
	return nil, wrong
}

// showHelp shows a function's signature: the function is named by itself or in quotes.
func (e *episode) showHelp(args []any) (any, error) {
	if len(args) == 1 {
		if name, ok := args[0].(string); ok {
			if f, ok := e.named[strings.TrimSpace(name)]; ok && e.helps {
				return tasks.Printed(f.helpText()), nil
			}
		}
	}
	return nil, errors.New("takes a function")
}
