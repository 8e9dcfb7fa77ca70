package main

import (
	"fmt"
	"regexp"
	"strings"
)

// formatMetadata writes METADATA after the version from pyproject.toml:
// https://packaging.python.org/en/latest/specifications/core-metadata/. Of TOML it reads texts and lists of texts alone.
func formatMetadata(project, readme string) (string, error) {
	var out strings.Builder
	for _, field := range []struct{ key, header string }{
		{"description", "Summary"}, {"license", "License-Expression"}, {"requires-python", "Requires-Python"},
	} {
		text := findText(project, field.key)
		if text == "" {
			return "", fmt.Errorf("python/pyproject.toml has no %s", field.key)
		}
		fmt.Fprintf(&out, "%s: %s\n", field.header, text)
	}
	out.WriteString("License-File: LICENSE\nLicense-File: NOTICE\n")
	fmt.Fprintf(&out, "Keywords: %s\n", strings.Join(findList(project, "keywords"), ","))
	for _, c := range findList(project, "classifiers") {
		fmt.Fprintf(&out, "Classifier: %s\n", c)
	}
	for _, name := range []string{"Homepage", "Changelog"} {
		fmt.Fprintf(&out, "Project-URL: %s, %s\n", name, findText(project, name))
	}
	fmt.Fprintf(&out, "Description-Content-Type: text/markdown\n\n%s", readme)
	return out.String(), nil
}

// findText returns the text of a key; "" for none.
func findText(project, key string) string {
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(key) + ` = "([^"\n]*)"$`).FindStringSubmatch(project)
	if m == nil {
		return ""
	}
	return m[1]
}

// findList returns the texts of a key's list.
func findList(project, key string) []string {
	m := regexp.MustCompile(`(?ms)^` + regexp.QuoteMeta(key) + ` = \[(.*?)\]$`).FindStringSubmatch(project)
	if m == nil {
		return nil
	}
	var out []string
	for _, text := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(m[1], -1) {
		out = append(out, text[1])
	}
	return out
}
