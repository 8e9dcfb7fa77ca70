package docs

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
)

// option is a key that some names of an algorithm have.
type option struct {
	key, kind string
	names     []string
	// meanings and defaults are what names say of the key, in the order of the names, each with the names that say so.
	meanings, defaults []saying
}

// saying is a text with the names that say it.
type saying struct {
	text  string
	names []string
}

// addSaying notes that a name says a text.
func addSaying(to []saying, text, name string) []saying {
	for i, s := range to {
		if s.text == text {
			to[i].names = append(to[i].names, name)
			return to
		}
	}
	return append(to, saying{text, []string{name}})
}

// writeAlgorithm writes the keys that the names of an algorithm have each for itself: a table of those of all names, with the names that have
// each.
func (w *configuration) writeAlgorithm(section, what string, names []string, keysOf func(name string) any) error {
	options, nested := map[string]*option{}, map[string]reflect.Type{}
	for _, name := range names {
		keys := keysOf(name)
		values := config.Values(keys)
		if err := w.collectKeys(reflect.TypeOf(keys).Elem(), "", func(key, meaning string, t reflect.Type) {
			o := options[key]
			if o == nil {
				o = &option{key: section + "." + key, kind: config.TypeName(t)}
				options[key] = o
			}
			o.names = append(o.names, name)
			o.meanings, o.defaults = addSaying(o.meanings, meaning, name), addSaying(o.defaults, formatValue(values[key]), name)
		}, nested); err != nil {
			return err
		}
	}
	own := fmt.Sprintf("Each %s has keys of its own in `%s`; a key that it does not have is refused.", what, section)
	w.out.WriteString(own + "\n\n")
	w.noteMeaning(section, own)
	w.writeOptions("", slices.Sorted(maps.Keys(options)), options, len(names))
	for _, below := range slices.Sorted(maps.Keys(nested)) {
		t, key := nested[below], section+"."+below
		doc, err := w.typeComments(t)
		if err != nil {
			return err
		}
		about := w.cleanComment("`"+key+"` "+strings.TrimPrefix(doc.about, t.Name()+" "), t)
		fmt.Fprintf(&w.out, "#### %s\n\n%s\n\n", key, about)
		w.noteMeaning(key, about)
		w.writeOptions(below+".", slices.Sorted(maps.Keys(options)), options, len(names))
	}
	return nil
}

// collectKeys calls add for each key of a struct, with its meaning and its type, and notes the structs within it by their keys.
func (w *configuration) collectKeys(t reflect.Type, prefix string, add func(key, meaning string, t reflect.Type), nested map[string]reflect.Type) error {
	doc, err := w.typeComments(t)
	if err != nil {
		return err
	}
	for f := range t.Fields() {
		name, rest, _ := strings.Cut(f.Tag.Get("koanf"), ",")
		below := prefix
		switch {
		case rest == "squash":
		case name == "" || name == "-":
			continue
		case f.Type.Kind() == reflect.Struct:
			nested[name], below = f.Type, prefix+name+"."
		default:
			if doc.fields[f.Name] == "" {
				return fmt.Errorf("%s.%s has no comment: say what the key %s means", t, f.Name, name)
			}
			add(prefix+name, w.cleanComment(doc.fields[f.Name], t), f.Type)
			continue
		}
		if err := w.collectKeys(f.Type, below, add, nested); err != nil {
			return err
		}
	}
	return nil
}

// writeOptions writes the table of the keys that begin with a prefix and have no dot after it. all is how many names there are.
func (w *configuration) writeOptions(prefix string, keys []string, options map[string]*option, all int) {
	var rows [][]string
	said := map[string]string{}
	for _, key := range keys {
		name, in := strings.CutPrefix(key, prefix)
		if !in || strings.Contains(name, ".") {
			continue
		}
		o := options[key]
		meaning := joinSayings(o.meanings, " ")
		w.noteMeaning(o.key, meaning)
		if first, again := said[meaning]; again {
			meaning = "See `" + first + "`."
		} else {
			said[meaning] = name
		}
		if len(o.names) < all {
			meaning += " Of `" + strings.Join(o.names, "`, `") + "`."
		}
		rows = append(rows, []string{"`" + o.key + "`", o.kind, joinSayings(o.defaults, "; "), meaning})
	}
	if len(rows) > 0 {
		writeTable(&w.out, []string{"key", "type", "default", "what it means"}, rows)
	}
}

// joinSayings joins what names say: what most of them say first and without their names, then what others say, with theirs.
func joinSayings(sayings []saying, between string) string {
	sorted := slices.Clone(sayings)
	slices.SortStableFunc(sorted, func(a, b saying) int { return len(b.names) - len(a.names) })
	var parts []string
	for i, s := range sorted {
		text := s.text
		if i > 0 {
			text = fmt.Sprintf("`%s`: %s", strings.Join(s.names, "`, `"), s.text)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, between)
}
