package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// outputFormat is how a command prints its answer: text for people, or JSON. It is the value of the flag --output.
type outputFormat string

// The formats.
const (
	outputText outputFormat = "text"
	outputJSON outputFormat = "json"
)

// outputFlag gives a command the flag -o: its output is text, or JSON with keys in snake case, a document for each call of printJSON, on a
// line of its own.
func outputFlag(cmd *cobra.Command) *outputFormat {
	f := outputText
	cmd.Flags().VarP(&f, "output", "o", "text, or json: one document a line, keys in snake case")
	completeWith(cmd, "output", string(outputText), string(outputJSON))
	return &f
}

// jsonFlag also makes --json a way to say -o json.
func jsonFlag(cmd *cobra.Command) *outputFormat {
	f := outputFlag(cmd)
	flag := cmd.Flags().VarPF((*jsonAlias)(f), "json", "", "the same as -o json")
	flag.NoOptDefVal, flag.Hidden = "true", true
	return f
}

// String is the flag's value.
func (f *outputFormat) String() string { return string(*f) }

// Set reads the flag's value.
func (f *outputFormat) Set(text string) error {
	switch outputFormat(text) {
	case outputText, outputJSON:
		*f = outputFormat(text)
		return nil
	}
	return fmt.Errorf("want %s or %s", outputText, outputJSON)
}

// Type is the word for the value in the help text.
func (f *outputFormat) Type() string { return "format" }

// isJSON reports whether JSON is asked for.
func (f *outputFormat) isJSON() bool { return *f == outputJSON }

// jsonAlias is an outputFormat as a flag without a value.
type jsonAlias outputFormat

// String is the flag's value.
func (f *jsonAlias) String() string { return strconv.FormatBool(outputFormat(*f) == outputJSON) }

// Set reads the flag's value.
func (f *jsonAlias) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err == nil && on {
		*f = jsonAlias(outputJSON)
	} else if err == nil {
		*f = jsonAlias(outputText)
	}
	return err
}

// Type makes the help text show no value.
func (f *jsonAlias) Type() string { return "bool" }

// printJSON writes a document on a line of its own. Characters that a terminal could take for a command are escaped.
func (w *console) printJSON(v any) error { return writeJSON(w.out, v) }

func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	_, err := w.Write(plainJSON(b.Bytes()))
	return err
}

// plainJSON escapes characters that encoding/json leaves alone and a terminal could obey: the control characters from U+007F on, and
// characters that change the direction of text. They stand in strings alone, where an escape means the same.
func plainJSON(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == '\n' || unicode.IsGraphic(r):
			out = append(out, data[:size]...)
		case r > 0xFFFF:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		data = data[size:]
	}
	return out
}
