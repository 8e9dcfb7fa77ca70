package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
)

// page is the width that texts about the configuration are wrapped to.
const page = 80

func newExplainCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain [key or section]", Short: "Say what a key means, what it takes and what it is set to",
		Long: `Explain says all of a configuration key: its meaning, type, default, the values it takes, its value here and where that
came from. Of a section it lists the keys; without an argument, the sections.`,
		Example: "  weir config explain\n  weir config explain trainer.loss\n  weir config explain trainer.eta --config run.yaml",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.keys().completeTopics,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, origins, err := a.loadConfig(cmd)
		if err != nil {
			return err
		}
		values := config.Values(a.keys().known) // also of keys that this configuration does not name
		maps.Copy(values, cfg.Others())
		maps.Copy(values, config.Values(cfg))
		e := explainer{app: a, cfg: cfg, values: values, origins: origins, changed: config.Changed(cfg)}
		var topic string
		if len(args) > 0 {
			topic = e.topic(args[0])
		}
		switch {
		case format.isJSON():
			return e.asJSON(topic)
		case topic == "":
			return e.printSections()
		}
		return e.printTopic(topic)
	}
	return cmd
}

// explainer prints the meaning, type and default of keys, beside their values.
type explainer struct {
	*app
	cfg     *config.Config
	values  map[string]any
	origins map[string]string
	// changed are the keys whose value is not the default.
	changed map[string]bool
}

// aboutKey describes a key: of this configuration, or else of the reference.
func (e *explainer) aboutKey(key string) (config.Entry, error) {
	entry, err := e.cfg.Explain(key)
	if err != nil {
		if other, err := e.keys().known.Explain(key); err == nil {
			return other, nil
		}
	}
	return entry, err
}

// keyMeaning is the purpose of a key or a section.
func (e *explainer) keyMeaning(key string) string {
	return cmp.Or(e.cfg.Meaning(key), e.keys().known.Meaning(key))
}

// matchingKeys are the keys that match, sorted.
func (e *explainer) matchingKeys(match func(key string) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(e.values)), func(key string) bool { return !match(key) })
}

// topic is a name as the configuration has it: of a flag, a variable or a key, or of a part of a key. NAME, as help has it for the name of
// a user's own section, is the first section that has the key: of this configuration, or else of the reference.
func (e *explainer) topic(name string) string {
	name = strings.Trim(name, "-.")
	if parts := strings.Split(name, "."); len(parts) > 2 && parts[1] == config.AnyName {
		rest := "." + strings.Join(parts[2:], ".")
		keys := e.matchingKeys(func(key string) bool {
			section, below, _ := strings.Cut(key, ".")
			_, own, _ := strings.Cut(below, ".")
			return section == parts[0] && "."+own == rest
		})
		own := config.Values(e.cfg)
		if at := slices.IndexFunc(keys, func(key string) bool { return own[key] != nil }); at >= 0 {
			return keys[at]
		}
		if len(keys) > 0 {
			return keys[0]
		}
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, config.Prefix), "__", "."))
}

// topicKeys are the keys that a topic is or can be: a single key, the keys of a section, or the keys that begin or end with the topic.
func (e *explainer) topicKeys(topic string) ([]string, error) {
	for _, match := range []func(key string) bool{
		func(key string) bool { return key == topic },
		func(key string) bool { return topic == "" || strings.HasPrefix(key, topic+".") },
		func(key string) bool { return strings.HasPrefix(key, topic) || strings.HasSuffix(key, "."+topic) },
	} {
		if keys := e.matchingKeys(match); len(keys) > 0 {
			return keys, nil
		}
	}
	_, err := e.aboutKey(topic)
	if at := strings.LastIndex(topic, "."); err == nil && at > 0 { // an entry of a map, which the map explains
		return e.topicKeys(topic[:at])
	}
	return nil, fault.Usagef("%w: weir config explain lists the sections", err)
}

// printTopic explains a key; lists a section; and of part of a name, either whichever it can be.
func (e *explainer) printTopic(topic string) error {
	keys, err := e.topicKeys(topic)
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(keys[0], topic+"."):
		return e.printSection(topic)
	case len(keys) == 1:
		return e.printKey(keys[0])
	}
	return e.listKeys(keys, "")
}

// explained is a key as JSON.
type explained struct {
	Key      string   `json:"key"`
	Type     string   `json:"type"`
	Unit     string   `json:"unit,omitempty"`
	Meaning  string   `json:"meaning"`
	Value    any      `json:"value"`
	From     string   `json:"from"`
	Default  any      `json:"default"`
	Choices  []string `json:"choices,omitempty"`
	Bounds   []string `json:"bounds,omitempty"`
	ReadBy   []string `json:"read_by,omitempty"`
	Flag     string   `json:"flag"`
	Variable string   `json:"variable"`
}

// asJSON prints a document for each key of a topic.
func (e *explainer) asJSON(topic string) error {
	keys, err := e.topicKeys(topic)
	if err != nil {
		return err
	}
	defaults := e.keys().known.Defaults()
	maps.Copy(defaults, e.cfg.Defaults())
	for _, key := range keys {
		about, err := e.aboutKey(key)
		if err != nil {
			return err
		}
		if err := e.printJSON(explained{
			Key: key, Type: about.Type, Unit: about.Unit, Meaning: about.Meaning, Value: e.values[key],
			From: cmp.Or(e.origins[key], "default"), Default: defaults[key], Choices: about.Choices, Bounds: about.Rules, ReadBy: about.ReadBy,
			Flag: "--" + key, Variable: config.Variable(key),
		}); err != nil {
			return err
		}
	}
	return nil
}

// printKey prints everything about a key.
func (e *explainer) printKey(key string) error {
	about, err := e.aboutKey(key)
	if err != nil {
		return err
	}
	kind := about.Type
	if about.Unit != "" {
		kind += ", in " + about.Unit
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (%s)\n\n%s\n\n", key, kind, wrapText(about.Meaning, "  "))
	line := func(name, text string) {
		indent := "             "
		fmt.Fprintf(&b, "  %-9s  %s\n", name, strings.TrimPrefix(wrapText(text, indent), indent))
	}
	value := config.Shown(e.values[key])
	line("value", fmt.Sprintf("%s (%s)", value, cmp.Or(e.origins[key], "default")))
	line("default", about.Default)
	if about.Choices != nil {
		line("one of", strings.Join(about.Choices, ", "))
	}
	for _, rule := range about.Rules {
		line("bounds", rule)
	}
	if about.ReadBy != nil {
		line("read by", strings.Join(about.ReadBy, ", "))
	}
	sample := config.Shown(e.values[key])
	switch {
	case about.Type == "map":
		sample = "NAME=VALUE"
	case about.Type == "list" && sample == "[]":
		sample = "VALUE,VALUE"
	}
	line("flag", "--"+key+" "+sample)
	line("variable", config.Variable(key)+"="+sample)
	_, err = fmt.Fprint(e.out, b.String())
	return err
}

// printSection lists a section's own keys, and the sections in it.
func (e *explainer) printSection(name string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", wrapText(e.keyMeaning(name), ""))
	if _, err := fmt.Fprint(e.out, b.String()); err != nil {
		return err
	}
	own := e.matchingKeys(func(key string) bool {
		rest, in := strings.CutPrefix(key, name+".")
		return in && !strings.Contains(rest, ".")
	})
	if err := e.listKeys(own, name+"."); err != nil {
		return err
	}
	below := map[string]int{}
	for key := range e.values {
		if rest, in := strings.CutPrefix(key, name+"."); in && strings.Contains(rest, ".") {
			first, _, _ := strings.Cut(rest, ".")
			below[name+"."+first]++
		}
	}
	return e.printSummaries(below, len(own) > 0)
}

// printSections lists the sections of the configuration.
func (e *explainer) printSections() error {
	top := map[string]int{}
	for key := range e.values {
		first, _, _ := strings.Cut(key, ".")
		top[first]++
	}
	if _, err := fmt.Fprintf(e.out, "%d keys, in sections; weir config explain SECTION lists those of one:\n\n", len(e.values)); err != nil {
		return err
	}
	return e.printSummaries(top, false)
}

// printSummaries prints a line for each section, with the number of its keys.
func (e *explainer) printSummaries(count map[string]int, gap bool) error {
	var b strings.Builder
	width := 0
	for name := range count {
		width = max(width, len(name))
	}
	if gap && len(count) > 0 {
		b.WriteString("\n")
	}
	for _, name := range slices.Sorted(maps.Keys(count)) {
		plural := "keys"
		if count[name] == 1 {
			plural = "key"
		}
		b.WriteString(cutLine(fmt.Sprintf("  %-*s  %3d %-4s  %s", width, name, count[name], plural, e.briefMeaning(name))) + "\n")
	}
	_, err := fmt.Fprint(e.out, b.String())
	return err
}

// listKeys prints each key, without the part of the name that all share, with its value and the first sentence of its
// meaning: beside them where that leaves it half of the page, and otherwise below. A value that is not the default is
// marked.
func (e *explainer) listKeys(keys []string, shared string) error {
	if len(keys) == 0 {
		return nil
	}
	var b strings.Builder
	const values = 12 // columns
	width, marked := 0, false
	for _, key := range keys {
		width = max(width, len(key)-len(shared))
	}
	indent := strings.Repeat(" ", 2+width+2+values+2)
	beside := len(indent) <= page/2
	if !beside {
		indent = "      "
	}
	for _, key := range keys {
		value, mark := config.Shown(e.values[key]), " "
		if e.changed[key] {
			mark, marked = "*", true
		}
		head := fmt.Sprintf("%s %-*s  %-*s", mark, width, strings.TrimPrefix(key, shared), values, value)
		meaning := wrapText(firstSentence(e.briefMeaning(key)), indent)
		if beside && utf8.RuneCountInString(head)+2 <= len(indent) {
			fmt.Fprintf(&b, "%s  %s\n", head, strings.TrimPrefix(meaning, indent))
		} else {
			fmt.Fprintf(&b, "%s\n%s\n", strings.TrimRight(head, " "), meaning)
		}
	}
	if marked {
		b.WriteString("\n* not the default\n")
	}
	_, err := fmt.Fprint(e.out, b.String())
	return err
}

// briefMeaning is the meaning of a key or section, without its name at the head.
func (e *explainer) briefMeaning(key string) string { return withoutName(key, e.keyMeaning(key)) }

// withoutName leaves a key's name at the head of its meaning out.
func withoutName(key, text string) string {
	last := key[strings.LastIndexByte(key, '.')+1:]
	for _, name := range []string{key, last} {
		for _, verb := range []string{" is ", " are ", " says ", " "} {
			if rest, ok := strings.CutPrefix(text, name+verb); ok && !strings.HasPrefix(rest, "and ") {
				return rest
			}
		}
	}
	return text
}

// firstSentence is the first of a text.
func firstSentence(text string) string {
	if first, _, more := strings.Cut(text, ". "); more {
		return first + "."
	}
	return text
}

// cutLine ends a line that is wider than the page.
func cutLine(line string) string {
	line = strings.TrimRight(line, " ")
	if utf8.RuneCountInString(line) <= page {
		return line
	}
	head := string([]rune(line)[:page-3])
	if space := strings.LastIndexByte(head, ' '); space > page/2 {
		head = head[:space]
	}
	return strings.TrimRight(head, " ,;:") + "..."
}

// wrapText breaks a text into lines of a page, each behind the indent.
func wrapText(text, indent string) string {
	var lines []string
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line) > len(indent) && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > page {
			lines, line = append(lines, line), indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}
