package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The output formats.
const (
	outputText = "text"
	outputJSON = "json"
)

// output is how a command prints its report: text for people, or JSON. It is the value of the flag --output.
type output string

// outputFlag gives a command the flags -o and --json.
func outputFlag(cmd *cobra.Command) *output {
	o := output(outputText)
	cmd.Flags().VarP(&o, "output", "o", "text, or json: one document on a line, keys in snake case")
	completeFlag(cmd, "output", outputText, outputJSON)
	cmd.Flags().BoolFunc("json", "the same as -o json", func(string) error { return o.Set(outputJSON) })
	return &o
}

// String is the flag's value.
func (o *output) String() string { return string(*o) }

// Set reads the flag's value.
func (o *output) Set(text string) error {
	if text != outputText && text != outputJSON {
		return fmt.Errorf("want %s or %s", outputText, outputJSON)
	}
	*o = output(text)
	return nil
}

// Type is the word for the value in the help text.
func (o *output) Type() string { return "format" }

// isJSON says whether JSON is asked for.
func (o *output) isJSON() bool { return *o == outputJSON }

// printReport prints a report as the format says; printText prints it for people.
func (l *lab) printReport(format *output, report any, printText func(io.Writer)) error {
	if !format.isJSON() {
		printText(l.out)
		return nil
	}
	encoder := json.NewEncoder(l.out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(report); err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	return nil
}

// completeFlag completes a flag with fixed values.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	complete := func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !strings.HasPrefix(v, begun) }), cobra.ShellCompDirectiveNoFileComp
	}
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag was made before
	}
}
