// Command weir trains LLM agents by reinforcement learning over a message stream: every role of a run in one
// binary.
package main

import (
	"os"

	"github.com/weir-rl/weir/internal/cli"
)

func main() { os.Exit(cli.Main()) }
