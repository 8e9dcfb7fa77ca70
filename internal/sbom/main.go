// Command sbom writes the list of the parts of a Go program in CycloneDX's form, as a release has it beside each binary:
//
//	go run ./internal/sbom PROGRAM VERSION DOCUMENT
//
// It reads the linker's list in the program, so that it has the modules that are linked in for that platform, and not all that go.mod names.
package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := writeList(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func writeList(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%d arguments: want a program, its version and the document to write", len(args))
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("read the parts of %s: %w", args[0], err)
	}
	document, err := encodeList(listModules(info, args[1]))
	if err != nil {
		return fmt.Errorf("write the parts of %s: %w", args[0], err)
	}
	return os.WriteFile(args[2], document, 0o644)
}

func encodeList(list *cdx.BOM) ([]byte, error) {
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(list, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

// listModules is the program with its modules and the standard library. It has neither a time nor a serial number: the same program gives the same
// document.
func listModules(info *debug.BuildInfo, version string) *cdx.BOM {
	out := cdx.NewBOM()
	main := moduleEntry(&debug.Module{Path: info.Main.Path, Version: version})
	main.Type = cdx.ComponentTypeApplication
	out.Metadata = &cdx.Metadata{Component: &main, Properties: &[]cdx.Property{
		{Name: "cdx:golang:go", Value: info.GoVersion},
		{Name: "cdx:golang:goos", Value: buildSetting(info, "GOOS")},
		{Name: "cdx:golang:goarch", Value: buildSetting(info, "GOARCH")},
	}}
	standard := moduleEntry(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})
	components := []cdx.Component{standard}
	needs := []string{standard.BOMRef}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := moduleEntry(m)
		components = append(components, c)
		needs = append(needs, c.BOMRef)
	}
	out.Components = &components
	out.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &needs}}
	return out
}

// moduleEntry is a module as a part, named as package URLs name modules of Go.
func moduleEntry(m *debug.Module) cdx.Component {
	url := "pkg:golang/" + m.Path
	if m.Version != "" && m.Version != "(devel)" {
		url += "@" + m.Version
	}
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, PackageURL: url, Name: m.Path, Version: m.Version}
	// go.sum's h1 is the SHA-256 of the list of the module's files.
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == 32 {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}

func buildSetting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
