package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/producers/data"
	"github.com/weir-rl/weir/producers/data/table"
)

// same writes rows as they are.
const same = "same"

func newDataCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "data FILE...", Short: "Say what data files hold, and convert them", Args: cobra.MinimumNArgs(1),
		Long: `Data reads JSONL, JSON and Parquet files as the task type dataset does, and says what they hold: rows, columns,
sources, splits, lengths, duplicates, and the faults by file and row. With --to it writes the rows again, as JSONL
or Parquet by the file's ending.`,
		Example: "  weir data train.parquet test.parquet --model.folder FOLDER\n  weir data train.jsonl --to train.parquet --as verl",
	}
	f := newDataFlags(cmd)
	format := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		m, err := f.readMapping()
		if err != nil {
			return err
		}
		tokens, err := a.tokenCounter(cmd)
		if err != nil {
			return err
		}
		var raw *[]map[string]any
		if *f.to != "" && *f.as == same {
			raw = &[]map[string]any{}
		}
		d, examples, err := m.Describe(cmd.Context(), files, tokens, raw)
		if err != nil {
			return err
		}
		if format.isJSON() {
			err = a.printJSON(d)
		} else {
			printData(a.out, d)
			printExamples(a.out, examples, *f.show)
		}
		if err != nil || *f.to == "" {
			return err
		}
		if d.Faulty > 0 {
			return fmt.Errorf("%d rows have faults: %s is not written, since it would lack them", d.Faulty, *f.to)
		}
		if *f.as != same {
			rows, err := data.Convert(examples, data.Schema(*f.as))
			if err != nil {
				return err
			}
			raw = &rows
		}
		if err := table.Write(*f.to, *raw); err != nil {
			return err
		}
		fmt.Fprintf(a.err, "wrote %d rows to %s\n", len(*raw), *f.to)
		return nil
	}
	return cmd
}

// dataFlags are the flags of weir data.
type dataFlags struct {
	schema  *string
	columns *map[string]string // by role
	show    *int
	to, as  *string
}

// newDataFlags adds the flags to a command.
func newDataFlags(cmd *cobra.Command) dataFlags {
	flags := cmd.Flags()
	f := dataFlags{
		schema:  flags.String("schema", string(data.Auto), "the layout of the columns: "+strings.Join(data.Schemas(), ", ")),
		columns: flags.StringToString("column", nil, "the column of a role, such as answer=labels.gold; repeat"),
		show:    flags.Int("show", 1, "how many prompts of each source are shown"),
		to:      flags.String("to", "", "a .jsonl or .parquet file to write; it must not be there"),
		as:      flags.String("as", same, "what --to writes: same, verl or plain"),
	}
	completeWith(cmd, "schema", data.Schemas()...)
	completeWith(cmd, "as", same, string(data.VeRL), string(data.Plain))
	return f
}

// readMapping returns how rows are read.
func (f *dataFlags) readMapping() (data.Mapping, error) {
	m := data.Mapping{Schema: data.Schema(*f.schema), Columns: *f.columns}
	if err := m.Validate(); err != nil {
		return m, fault.Usagef("--%w", err)
	}
	if !slices.Contains([]string{same, string(data.VeRL), string(data.Plain)}, *f.as) {
		return m, fault.Usagef("--as %s: want same, verl or plain", *f.as)
	}
	return m, nil
}

// tokenCounter counts the tokens of a text by the tokenizer of model.folder; nil without a folder.
func (a *app) tokenCounter(cmd *cobra.Command) (func(string) int, error) {
	cfg, _, err := a.loadConfig(cmd)
	if err != nil || cfg.Model.Folder == "" {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(cfg.Model.Folder, "tokenizer.json")); err != nil {
		return nil, fmt.Errorf("model.folder: %w", err)
	}
	codec, err := tokenizer.OpenFolder(cfg.Model.Folder)
	if err != nil {
		return nil, fmt.Errorf("model.folder: %w", err)
	}
	return func(text string) int { return len(codec.Encode(text)) }, nil
}

// printData shows the contents of data files.
func printData(w io.Writer, d *data.Description) {
	for _, f := range d.Files {
		fmt.Fprintf(w, "%s: %d rows, columns %s\n", f.Path, f.Rows, strings.Join(f.Columns, ", "))
	}
	fmt.Fprintf(w, "schema      %s\n", listCounts(d.Schemas))
	fmt.Fprintf(w, "sources     %s\n", listCounts(d.Sources))
	splits := map[string]int{}
	for split, n := range d.Splits {
		splits[cmp.Or(string(split), "not named")] = n
	}
	fmt.Fprintf(w, "splits      %s\n", listCounts(splits))
	fmt.Fprintf(w, "characters  %s\n", describeLengths(d.Characters))
	if d.Tokens != nil {
		fmt.Fprintf(w, "tokens      %s\n", describeLengths(*d.Tokens))
	}
	fmt.Fprintf(w, "duplicates  %d to the letter, %d but for case, punctuation and space\n", d.Duplicates.Exact, d.Duplicates.Normalized)
	for _, of := range []struct {
		name string
		n    map[string]int
	}{{"tools", d.Tools}, {"abilities", d.Abilities}} {
		if len(of.n) > 0 {
			fmt.Fprintf(w, "%-11s %s\n", of.name, listCounts(of.n))
		}
	}
	var has []string
	for _, of := range []struct {
		name string
		n    int
	}{
		{"conversations", d.Conversations},
		{"hidden tests", d.Tests},
		{"worlds for tools", d.Worlds},
		{"difficulties", d.Difficulties},
		{"pass rates", d.PassRates},
		{"passages", d.Passages},
	} {
		if of.n > 0 {
			has = append(has, fmt.Sprintf("%d %s", of.n, of.name))
		}
	}
	if len(has) > 0 {
		fmt.Fprintf(w, "also        %s\n", strings.Join(has, ", "))
	}
	if d.Faulty > 0 {
		fmt.Fprintf(w, "faults      %d rows, the first:\n", d.Faulty)
		for _, f := range d.Faults {
			fmt.Fprintf(w, "  %s\n", visibleText(f))
		}
	}
}

// listCounts lists names with their numbers, the most frequent first, the rest as a single entry.
func listCounts(n map[string]int) string {
	const most = 8
	names := slices.SortedFunc(maps.Keys(n), func(x, y string) int { return cmp.Or(n[y]-n[x], strings.Compare(x, y)) })
	var parts []string
	rest := 0
	for i, name := range names {
		if i < most {
			parts = append(parts, fmt.Sprintf("%s %d", visibleText(name), n[name]))
		} else {
			rest += n[name]
		}
	}
	if rest > 0 {
		parts = append(parts, fmt.Sprintf("%d others %d", len(names)-most, rest))
	}
	return strings.Join(parts, ", ")
}

func describeLengths(l data.Lengths) string {
	return fmt.Sprintf("%d to %d, median %d, 95 in a hundred at most %d", l.Least, l.Most, l.Median, l.Most95)
}

// shownChars bounds a text that is shown.
const shownChars = 400

// printExamples shows the first prompts of each source.
func printExamples(w io.Writer, examples []*data.Example, n int) {
	shown := map[string]int{}
	for _, e := range examples {
		if shown[e.Source]++; shown[e.Source] > n {
			continue
		}
		fmt.Fprintf(w, "\n%s   id %s, source %s\n  question  %s\n", visibleText(e.Where()), visibleText(e.ID), visibleText(e.Source), visibleText(cutText(e.Text)))
		if len(e.Answers) > 0 {
			fmt.Fprintf(w, "  answers   %s\n", visibleText(cutText(strings.Join(e.Answers, " | "))))
		}
		if e.World != nil {
			fmt.Fprintf(w, "  world     %s\n", visibleText(cutText(string(e.World))))
		}
		if e.Hidden != nil {
			fmt.Fprintf(w, "  tests     %s\n", visibleText(cutText(string(e.Hidden))))
		}
	}
}

func cutText(s string) string {
	r := []rune(s)
	if len(r) <= shownChars {
		return s
	}
	return string(r[:shownChars]) + fmt.Sprintf("... (%d more)", len(r)-shownChars)
}

// visibleText is a text of a file as it can be shown on a terminal: on a single line, and without control characters.
func visibleText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return '\u23ce'
		case r == '\t':
			return ' '
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, s)
}
