package docs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Pages maps the path of each generated file, from the module's folder root, to its writer.
func Pages(root string) map[string]func() ([]byte, error) {
	return map[string]func() ([]byte, error){
		"docs/configuration.md":         func() ([]byte, error) { return Configuration(root) },
		"docs/metrics.md":               func() ([]byte, error) { return Metrics(root) },
		"docs/commands.md":              Commands,
		"internal/config/meanings.json": func() ([]byte, error) { return Meanings(root) },
	}
}

// generated heads each page.
const generated = "<!-- Written by go generate ./internal/docs from the code. Change the comments there, not this page. -->\n\n"

// Root is the module's folder: the nearest folder above the working directory that holds go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("find the module: no go.mod above the working directory")
		}
		dir = up
	}
}

// writeTable writes a Markdown table.
func writeTable(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) {
		for _, c := range cells {
			b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
	}
	line(head)
	b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
	for _, r := range rows {
		line(r)
	}
	b.WriteString("\n")
}
