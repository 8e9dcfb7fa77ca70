// Command fake stands in for vLLM and SGLang as a process: fake vllm serve DIR ..., fake sglang --model-path DIR ...
package main

import (
	"os"

	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/fakeserver"
)

func main() {
	os.Exit(fakeserver.Main(os.Args[1:], native.Backend{Options: native.Options{Threads: 1}}.NewDecoder))
}
