package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
)

const configurationHead = `# Configuration

Every role reads the same configuration. A key can be set in four places; the later wins:

1. the default, below;
2. files: ` + "`--config run.yaml`" + `, as often as you like, later files over earlier ones;
3. the environment: ` + "`trainer.batch_groups` is `WEIR_TRAINER__BATCH_GROUPS`" + ` (two underscores for a dot);
4. flags: ` + "`--trainer.batch_groups 16`" + `.

An unknown key or a wrong value is an error that names the key, where it came from and the nearest valid one; all of them
are reported at once, and the exit code is 3. ` + "`weir config show`" + ` prints what is in force as a file that can be read again,
` + "`weir config show --origins`" + ` where each value came from, ` + "`--changed`" + ` only what differs from the defaults. ` + "`weir config check`" + `
also reads the data that it names. ` + "`weir config explain trainer.eta`" + ` says what stands on this page of a key, with the values that it
takes; without a key it lists the sections. A run writes its own configuration to ` + "`runs/<run>/config.yaml`" + `.

Paths below that begin with ` + "`runs/demo`" + ` follow ` + "`run.dir` and `run.name`" + `. Durations are written ` + "`30s`, `2m` or `1h30m`" + `. Lists
are written with commas in a flag or a variable. Bytes are plain numbers.

`

// Configuration writes the reference of every key.
func Configuration(root string) ([]byte, error) {
	w, err := writeReference(root)
	if err != nil {
		return nil, err
	}
	return []byte(strings.TrimRight(w.out.String(), "\n") + "\n"), nil
}

// Meanings writes the texts of the program itself about every key and section: the same text, as JSON by key.
func Meanings(root string) ([]byte, error) {
	w, err := writeReference(root)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err = enc.Encode(w.meanings)
	return out.Bytes(), err
}

// writeReference writes the reference and returns it with its sources.
func writeReference(root string) (*configuration, error) {
	doors := builtin.Doors()
	cfg := config.Default(doors)
	if err := cfg.Finish(); err != nil {
		return nil, err
	}
	w := &configuration{
		source: newSource(root), values: config.Values(config.Reference(doors)), top: reflect.TypeOf(*cfg), meanings: map[string]string{},
		overrides: cfg.Overrides(), own: cfg.OwnDefaults, first: map[reflect.Type]string{}, told: map[string]comment{},
	}
	maps.Copy(w.values, config.Values(cfg))
	maps.Copy(w.values, config.Values(config.Named()))
	w.out.WriteString(generated + configurationHead)
	w.writeContents()
	for f := range w.top.Fields() {
		key := f.Tag.Get("koanf")
		var err error
		switch {
		case key == "":
		case f.Type.Kind() == reflect.Map:
			err = w.writeNamedSections(key, f.Type.Elem().Elem(), doors)
		default:
			err = w.writeSection(key, f.Type, "", w.top)
		}
		if err != nil {
			return nil, err
		}
	}
	return w, nil
}

// writeNamedSections writes a section whose sections the user names: the keys that all of them have, then the keys of each type.
func (w *configuration) writeNamedSections(key string, t reflect.Type, doors parts.Registry) error {
	fmt.Fprintf(&w.out, "## %s\n\n", key)
	w.meanings[key] = "a section for each of the run's " + key + ", named by you"
	if err := w.writeSection(key+"."+config.AnyName, t, "", w.top); err != nil {
		return err
	}
	for _, part := range doors.Parts(key) {
		if own := reflect.TypeOf(part.Config()); own != nil {
			name := key + "." + part.Name()
			if err := w.writeSection(name, own.Elem(), fmt.Sprintf("These are the keys of a section of `%s` whose type is %s.", key, part.Name()), w.top); err != nil {
				return err
			}
		}
	}
	if key != "tasks" {
		return nil
	}
	for _, part := range doors.Rewards {
		own := part.Config()
		if own == nil {
			continue
		}
		// Several types have keys of the same names, so the meanings have the type between.
		name := "tasks." + config.AnyName + ".reward"
		for k, v := range config.Values(own) {
			w.values[name+"."+k] = v
		}
		w.between = [2]string{name, part.Name()}
		why := fmt.Sprintf("These are the keys of a reward whose type is %s.", part.Name())
		err := w.writeSection(name, reflect.TypeOf(own).Elem(), why, w.top)
		w.between = [2]string{}
		if err != nil {
			return err
		}
	}
	return nil
}

type configuration struct {
	source
	out    strings.Builder
	values map[string]any
	top    reflect.Type
	// overrides are the sections that have the keys of another section; own are the defaults that such a section has of its own.
	overrides map[string]string
	own       func(section string) map[string]any
	// first is the first section of a type within another section: a later one with the same defaults points to it.
	first map[reflect.Type]string
	// told are the comments of keys, as the code has them.
	told map[string]comment
	// meanings of keys and sections, without marks.
	meanings map[string]string
	// between is a section and the name that comes between it and its keys in the meanings, "" for nothing.
	between [2]string
}

// comment is the code's text on a key, with the name of the key's field.
type comment struct{ text, field string }

// noteMeaning notes the meaning of a key or a section.
func (w *configuration) noteMeaning(key, text string) {
	if section, name := w.between[0], w.between[1]; section != "" {
		rest, below := strings.CutPrefix(key, section+".")
		if !below {
			return
		}
		key = section + "." + name + "." + rest
	}
	text = linked.ReplaceAllString(strings.ReplaceAll(text, "`", ""), "$1")
	w.meanings[key] = strings.TrimSpace(w.meanings[key] + " " + text)
}

var linked = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)

func (w *configuration) writeContents() {
	var links []string
	for f := range w.top.Fields() {
		key := f.Tag.Get("koanf")
		if key == "" {
			continue
		}
		links = append(links, fmt.Sprintf("[%s](#%s)", key, key))
	}
	w.out.WriteString("Sections: " + strings.Join(links, ", ") + ".\n\n")
}

// writeSection writes the table of a struct, then the tables of the structs in it. why is the comment of the field that holds it, in
// the struct outer, says of it.
func (w *configuration) writeSection(key string, t reflect.Type, why string, outer reflect.Type) error {
	doc, err := w.typeComments(t)
	if err != nil {
		return err
	}
	fmt.Fprintf(&w.out, "%s %s\n\n", strings.Repeat("#", min(2+strings.Count(key, "."), 4)), key)
	if doc.about != "" {
		about := "`" + key + "` " + strings.TrimPrefix(doc.about, t.Name()+" ")
		w.out.WriteString(w.cleanComment(about, t) + "\n\n")
		w.noteMeaning(key, w.cleanComment(about, t))
	}
	if why != "" && !repeatsComment(doc.about, why) {
		w.noteMeaning(key, w.cleanComment(why, outer))
		w.out.WriteString(w.cleanComment(why, outer) + "\n\n")
	}
	var rows [][]string
	var below []below
	if err := w.writeFields(key, t, &rows, &below); err != nil {
		return err
	}
	if len(rows) > 0 {
		writeTable(&w.out, []string{"key", "type", "default", "what it means"}, rows)
	}
	if err := w.addChoices(key); err != nil {
		return err
	}
	for _, b := range below {
		if err := w.writeBelow(b, t); err != nil {
			return err
		}
	}
	return nil
}

// writeBelow writes a section within a section: of one that overrides another section, what it has of its own.
func (w *configuration) writeBelow(b below, outer reflect.Type) error {
	base, first := w.overrides[b.key], w.first[b.t]
	if base == "" && (first == "" || !w.alike(first, b.key)) {
		if first == "" {
			w.first[b.t] = b.key
		}
		return w.writeSection(b.key, b.t, b.why, outer)
	}
	page := w.out
	w.out = strings.Builder{} // the meanings of the keys are noted, and their table is the other section's
	err := w.writeSection(b.key, b.t, b.why, outer)
	w.out = page
	if err != nil {
		return err
	}
	if base == "" {
		fmt.Fprintf(&w.out, "%s %s\n\n", strings.Repeat("#", min(2+strings.Count(b.key, "."), 4)), b.key)
		if b.why != "" {
			w.out.WriteString(w.cleanComment(b.why, outer) + "\n\n")
		}
		fmt.Fprintf(&w.out, "The keys and their defaults are those of [%s](#%s).\n\n", first, strings.ReplaceAll(first, ".", ""))
		return nil
	}
	var own []string
	for _, name := range slices.Sorted(maps.Keys(w.own(b.key))) {
		own = append(own, fmt.Sprintf("`%s`: %s", name, w.formatDefault(b.key+"."+name)))
	}
	fmt.Fprintf(&w.out, "#### %s\n\n", b.key)
	if b.why != "" {
		w.out.WriteString(w.cleanComment(b.why, outer) + "\n\n")
	}
	fmt.Fprintf(&w.out, "The keys are those of [%s](#%s). A key that is not set here has its value there, but for %s.\n\n",
		base, strings.ReplaceAll(base, ".", ""), strings.Join(own, ", "))
	return nil
}

// alike says whether two sections have the same keys with the same defaults.
func (w *configuration) alike(a, b string) bool {
	under := func(section string) map[string]string {
		out := map[string]string{}
		for key := range w.values {
			if name, in := strings.CutPrefix(key, section+"."); in {
				out[name] = w.formatDefault(key)
			}
		}
		return out
	}
	return maps.Equal(under(a), under(b))
}

// below is a section within a section.
type below struct {
	key string
	t   reflect.Type
	why string
}

func (w *configuration) writeFields(key string, t reflect.Type, rows *[][]string, sections *[]below) error {
	doc, err := w.typeComments(t)
	if err != nil {
		return err
	}
	said := map[string]string{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("koanf"), ",")
		text := doc.fields[f.Name]
		switch {
		case f.Type.Kind() == reflect.Interface: // the keys of a type or an algorithm, which come below
		case options == "squash":
			if err := w.writeFields(key, f.Type, rows, sections); err != nil {
				return err
			}
		case name == "" || name == "-" || !f.IsExported():
		case f.Type.Kind() == reflect.Struct:
			*sections = append(*sections, below{key + "." + name, f.Type, text})
		case text == "":
			return fmt.Errorf("%s.%s has no comment: say what %s.%s means", t, f.Name, key, name)
		default:
			full := key + "." + name
			w.told[full] = comment{text, f.Name}
			meaning, choices := w.cleanComment(text, t), ""
			for _, c := range w.choices[strings.TrimPrefix(f.Type.PkgPath(), module)+"."+f.Type.Name()] {
				choices += " `" + c.value + "` " + c.about
			}
			w.noteMeaning(full, meaning+choices)
			if first, again := said[text]; again {
				meaning = "See `" + first + "`."
			} else {
				said[text] = name
			}
			meaning += choices
			*rows = append(*rows, []string{"`" + full + "`", config.TypeName(f.Type), w.formatDefault(full), meaning})
		}
	}
	return nil
}

// formatDefault is a key's default as a user would write it.
func (w *configuration) formatDefault(key string) string { return formatValue(w.values[key]) }

// formatValue is a value as a user would write it, in code marks.
func formatValue(value any) string {
	switch v := value.(type) {
	case string:
		if v == "" || strings.Trim(v, "0123456789smh.") != "" {
			return "`" + fmt.Sprintf("%q", v) + "`"
		}
		return "`" + shortDuration(v) + "`"
	case []string, []int:
		if reflect.ValueOf(v).Len() == 0 {
			return "`[]`"
		}
		return fmt.Sprintf("`%v`", v)
	default:
		switch at := reflect.ValueOf(v); {
		case at.Kind() == reflect.String:
			return fmt.Sprintf("`%q`", v)
		case at.Kind() == reflect.Map && at.Len() == 0:
			return "`{}`"
		}
		return fmt.Sprintf("`%v`", v)
	}
}

// shortDuration drops the parts that are 0: 1h0m0s is 1h.
func shortDuration(v string) string {
	if strings.HasSuffix(v, "m0s") {
		v = strings.TrimSuffix(v, "0s")
	}
	if strings.HasSuffix(v, "h0m") {
		v = strings.TrimSuffix(v, "0m")
	}
	return v
}

var (
	plainDefault  = regexp.MustCompile(`\s*\bDefaults? to ("[^"]*"|[^.:]|\.\d|\.[a-z]|:\d)*\.(\s|$)`)
	tellingWhich  = regexp.MustCompile(`\bDefaults to ("[^"]*"|[^\s,]+), which `)
	tellingThe    = regexp.MustCompile(`\bDefaults to ("[^"]*"|[^\s,]+), (the|any) `)
	tellingColon  = regexp.MustCompile(`\bDefaults to ([^\s:]+): `)
	dotted        = regexp.MustCompile(`\b([A-Z][A-Za-z0-9]*)\.([A-Z][A-Za-z0-9]*)\b`)
	forGophers    = regexp.MustCompile(`[^.]*\bDefault[A-Z][A-Za-z]+\b[^.]*\.(\s|$)|, which Resolve shows|\s*Its name defaults to "[a-z_]+"\.`)
	listedBelow   = regexp.MustCompile(`one of advantage\.Names|see Names`)
	bracketed     = regexp.MustCompile(`\[(Err[A-Za-z]+|[A-Z][A-Za-z.]+)\]`)
	tag           = regexp.MustCompile(`</?[a-z]+>`)
	algorithmPage = regexp.MustCompile(`\bdocs/(algorithms)\.md\b`)
)

// cleanComment turns a Go comment into a user's sentence: keys for the names of fields, and no default, which has a
// column of its own.
func (w *configuration) cleanComment(text string, t reflect.Type) string {
	text = forGophers.ReplaceAllString(text, "")
	text = listedBelow.ReplaceAllString(text, "one of those below")
	text = tellingWhich.ReplaceAllString(text, "$1 ")
	text = tellingThe.ReplaceAllString(text, "$1 is $2 ")
	text = tellingColon.ReplaceAllString(text, "$1: ")
	text = plainDefault.ReplaceAllString(text, " ")
	text = bracketed.ReplaceAllString(text, "$1")
	text = dotted.ReplaceAllStringFunc(text, w.keyPath)
	// Text in code marks is a formula or a value: it is left as it is.
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		for f := range t.Fields() {
			parts[i] = renameField(parts[i], f)
		}
		parts[i] = tag.ReplaceAllString(parts[i], "`$0`")
	}
	text = strings.Join(parts, "`")
	text = algorithmPage.ReplaceAllString(text, "[docs/$1.md]($1.md)")
	return strings.TrimSpace(text)
}

// renameField writes a field's key for its name.
func renameField(text string, f reflect.StructField) string {
	if f.Anonymous {
		for inner := range f.Type.Fields() {
			text = renameField(text, inner)
		}
		return text
	}
	name, _, _ := strings.Cut(f.Tag.Get("koanf"), ",")
	if name == "" || name == "-" || !mentionsName(text, f.Name) {
		return text
	}
	if f.Name == strings.ToUpper(f.Name) && len(f.Name) < 4 {
		return text // KL, CA, URL: the word itself is clearer
	}
	return regexp.MustCompile("(^|[^`A-Za-z0-9_.-])"+f.Name+"($|[^`A-Za-z0-9_])").ReplaceAllString(text, "${1}`"+name+"`${2}")
}

// keyPath turns Run.Seed into run.seed where the configuration has such a key.
func (w *configuration) keyPath(name string) string {
	first, second, _ := strings.Cut(name, ".")
	f, ok := w.top.FieldByName(first)
	if !ok || f.Tag.Get("koanf") == "" || f.Type.Kind() != reflect.Struct {
		return name
	}
	g, ok := f.Type.FieldByName(second)
	if !ok {
		return name
	}
	return "`" + f.Tag.Get("koanf") + "." + g.Tag.Get("koanf") + "`"
}

// repeatsComment is true where a field's comment begins as its type's does.
func repeatsComment(about, why string) bool {
	_, about, _ = strings.Cut(about, " ")
	_, why, _ = strings.Cut(strings.TrimSuffix(why, "."), " ")
	return strings.HasPrefix(about, why)
}

// addChoices adds the names that a key takes where the code has a list of them, and the keys that each name has.
func (w *configuration) addChoices(key string) error {
	switch key {
	case "trainer.advantage":
		w.writeNames("trainer.advantage.name", advantage.Names())
		return w.writeAlgorithm("trainer.advantage", "estimator", advantage.Names(), func(name string) any { return advantage.Keys(name) })
	case "trainer.loss":
		w.writeNames("trainer.loss.name", loss.Names())
		return w.writeAlgorithm("trainer.loss.options", "loss", loss.Names(), func(name string) any { return loss.Keys(name) })
	}
	return nil
}

func (w *configuration) writeNames(key string, names []string) {
	fmt.Fprintf(&w.out, "`%s` is one of: `%s`. [algorithms.md](algorithms.md) says what each does.\n\n", key, strings.Join(names, "`, `"))
}
