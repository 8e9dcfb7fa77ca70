// Command weir-lab breaks and measures Weir: fault injection, benchmarks, load and mutation tests. None of it is in the user's program.
package main

import (
	"os"

	"github.com/weir-rl/weir/internal/lab/command"
)

func main() { os.Exit(command.Main()) }
