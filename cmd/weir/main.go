// Command weir trains LLM agents by reinforcement learning over a message stream: every role of a run in one
// binary.
package main

import "github.com/weir-rl/weir"

func main() { weir.Main() }
