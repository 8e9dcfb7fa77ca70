// Command generate writes deploy/grafana's dashboards: run it in internal/dashboards.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/dashboards"
)

func main() {
	for _, b := range dashboards.Boards() {
		text, err := b.JSON()
		if err == nil {
			err = os.WriteFile(filepath.Join("..", "..", "deploy", "grafana", "provisioning", "dashboards", b.UID+".json"), text, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
