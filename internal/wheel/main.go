// Command wheel writes the Python package weir-rl with a program for its platform in it, a wheel as pip and uv install it:
//
//	go run ./internal/wheel PROGRAM VERSION FOLDER
//
// The platform is read from the program. The same sources, program and version give the same bytes.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := writeWheel(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wheel:", err)
		os.Exit(1)
	}
}

// writeWheel packs a program into a wheel in a folder, and prints the wheel's path.
func writeWheel(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%d arguments: want a program, its version and a folder for the wheel", len(args))
	}
	program, err := os.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	tags, err := platformTags(program)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	version, err := pythonVersion(args[1])
	if err != nil {
		return err
	}
	w := wheel{version: version, tags: tags, program: program}
	if err := w.readSources("."); err != nil {
		return fmt.Errorf("read the package (run this in the tree's root): %w", err)
	}
	data, err := w.pack()
	if err != nil {
		return fmt.Errorf("pack the wheel: %w", err)
	}
	path := filepath.Join(args[2], w.name())
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return err
	}
	_, err = fmt.Println(path)
	return err
}
