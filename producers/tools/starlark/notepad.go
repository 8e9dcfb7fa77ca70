package starlark

import (
	"fmt"
	"slices"
	"strings"

	lang "go.starlark.net/starlark"
)

// notepad is an agent's notes for later, as the variable notepad: things to do, facts and a draft. An agent whose context is trimmed is
// shown it again; see producers.Observation.
type notepad struct {
	most  int // bytes of its text
	todo  []item
	facts []string
	draft string
}

type item struct {
	text string
	done bool
}

var notepadMethods = map[string]func(n *notepad, args []string) error{
	"add_todo":    (*notepad).addTodo,
	"finish_todo": (*notepad).finishTodo,
	"add_facts":   (*notepad).addFacts,
	"write_draft": (*notepad).writeDraft,
	"clear":       (*notepad).clearNotes,
}

// String is the notepad as it is shown: the sections that hold something, each under its name.
func (n *notepad) String() string {
	var out []string
	if len(n.todo) > 0 {
		out = append(out, "todo:")
	}
	for _, item := range n.todo {
		mark := "[ ] "
		if item.done {
			mark = "[x] "
		}
		out = append(out, mark+item.text)
	}
	if len(n.facts) > 0 {
		out = append(out, "facts:")
	}
	for _, fact := range n.facts {
		out = append(out, "- "+fact)
	}
	if n.draft != "" {
		out = append(out, "draft:", n.draft)
	}
	return strings.Join(out, "\n")
}

func (n *notepad) addTodo(texts []string) error {
	for _, text := range texts {
		n.todo = append(n.todo, item{text: text})
	}
	return nil
}

// finishTodo marks items by their text.
func (n *notepad) finishTodo(texts []string) error {
	for _, text := range texts {
		i := slices.IndexFunc(n.todo, func(t item) bool { return t.text == text && !t.done })
		if i < 0 {
			return fmt.Errorf("nothing to do is %q", text)
		}
		n.todo[i].done = true
	}
	return nil
}

func (n *notepad) addFacts(texts []string) error {
	n.facts = append(n.facts, texts...)
	return nil
}

func (n *notepad) writeDraft(texts []string) error {
	n.draft = strings.Join(texts, "\n")
	return nil
}

// clearNotes clears the notepad.
func (n *notepad) clearNotes([]string) error {
	n.todo, n.facts, n.draft = nil, nil, ""
	return nil
}

// Attr is a method: each takes texts, or lists of texts, and returns None.
func (n *notepad) Attr(name string) (lang.Value, error) {
	method, ok := notepadMethods[name]
	if !ok {
		return nil, nil
	}
	return lang.NewBuiltin(name, func(_ *lang.Thread, b *lang.Builtin, args lang.Tuple, kwargs []lang.Tuple) (lang.Value, error) {
		if len(kwargs) > 0 {
			return nil, fmt.Errorf("%s: takes no argument by name", b.Name())
		}
		var words []string
		for _, arg := range args {
			words = append(words, textsOf(arg)...)
		}
		if len(words) == 0 && name != "clear" {
			return nil, fmt.Errorf("%s: takes a text or a list of texts", b.Name())
		}
		before := notepad{todo: slices.Clone(n.todo), facts: slices.Clone(n.facts), draft: n.draft, most: n.most}
		if err := method(n, words); err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name(), err)
		}
		if len(n.String()) > n.most {
			*n = before
			return nil, fmt.Errorf("%s: the notepad holds %d bytes at most: clear() empties it", b.Name(), n.most)
		}
		return lang.None, nil
	}), nil
}

// textsOf returns the texts of a value: the items of a list singly.
func textsOf(v lang.Value) []string {
	list, ok := v.(lang.Sequence)
	if !ok {
		return []string{printedText(v)}
	}
	var out []string
	for element := range lang.Elements(list) {
		out = append(out, printedText(element))
	}
	return out
}

// printedText returns a text as it is, and any other value as it is printed.
func printedText(v lang.Value) string {
	if text, ok := lang.AsString(v); ok {
		return text
	}
	return v.String()
}

func (n *notepad) AttrNames() []string {
	var out []string
	for name := range notepadMethods {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (n *notepad) Type() string          { return "notepad" }
func (n *notepad) Freeze()               {}
func (n *notepad) Truth() lang.Bool      { return n.String() != "" }
func (n *notepad) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: notepad") }
