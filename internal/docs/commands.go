package docs

import (
	"fmt"
	"strings"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/cli"
)

const commandsHead = `# Commands

Every key of the [configuration](configuration.md) is a flag of every command that reads it (` + "`--trainer.eta 4`" + `); the flags below are
a command's own. Answers go to stdout, progress and errors to stderr. With ` + "`-o json`" + ` a command that answers prints one document a
line, its keys in snake case. ` + "`--help`" + ` of a command says the same as this page.

On a terminal ` + "`weir up` and `weir trainer`" + ` draw a live view; into a file or a pipe, with ` + "`--plain`, with a value in `NO_COLOR`" + ` and
with ` + "`TERM=dumb`" + ` they print a line a step.

Completion of commands, keys, their values and the names of runs:

` + "```sh" + `
source <(weir completion bash)                                      # this shell
weir completion bash > /etc/bash_completion.d/weir                  # every shell; zsh, fish and powershell likewise
` + "```" + `

## Exit statuses

`

// Commands writes the reference of every command.
func Commands() ([]byte, error) {
	var b strings.Builder
	b.WriteString(generated + commandsHead)
	exits := func(list []cli.Exit) {
		var rows [][]string
		for _, e := range list {
			rows = append(rows, []string{e.Status, e.Meaning})
		}
		writeTable(&b, []string{"status", "means"}, rows)
	}
	exits(cli.Exits())
	all := cli.Reference(builtin.Doors())
	b.WriteString("## The commands\n\n")
	var rows [][]string
	for _, c := range all {
		rows = append(rows, []string{fmt.Sprintf("[`%s`](#%s)", c.Path, strings.ReplaceAll(c.Path, " ", "-")), c.Short})
	}
	writeTable(&b, []string{"command", "what it does"}, rows)
	for _, c := range all {
		fmt.Fprintf(&b, "## %s\n\n", c.Path)
		text := c.Long
		if text == "" || strings.HasPrefix(c.Path, "weir completion ") {
			text = c.Short + "."
		}
		fmt.Fprintf(&b, "```\n%s\n```\n\n%s\n\n", c.Use, escapeMarkup(text))
		if len(c.Flags) > 0 {
			rows = rows[:0]
			for _, f := range c.Flags {
				name, preset := f.Name, ""
				if f.Value != "" {
					name += " " + f.Value
				}
				if f.Default != "" {
					preset = "`" + f.Default + "`"
				}
				rows = append(rows, []string{"`" + name + "`", preset, escapeMarkup(f.Meaning)})
			}
			writeTable(&b, []string{"flag", "default", "meaning"}, rows)
		}
		if len(c.Exits) > 0 {
			exits(c.Exits)
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "```sh\n%s\n```\n\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
		}
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "\n"), nil
}

// escapeMarkup keeps angle brackets of help texts from being read as markup.
func escapeMarkup(text string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "*", `\*`).Replace(text)
}
