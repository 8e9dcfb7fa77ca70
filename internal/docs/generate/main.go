// Command generate writes the generated pages of docs/, and the program's own texts about its keys.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/docs"
)

func main() {
	if err := writePages(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func writePages() error {
	root, err := docs.Root()
	if err != nil {
		return err
	}
	for name, page := range docs.Pages(root) {
		text, err := page()
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
