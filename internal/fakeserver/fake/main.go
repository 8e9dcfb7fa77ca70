// Command fake stands in for vLLM and SGLang as a process, for tests: fake vllm serve DIR ..., fake sglang --model-path DIR ...
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/fakeserver"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fake:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	kind, address, o, err := fakeserver.Parse(args)
	if err != nil {
		return err
	}
	o.NewDecoder = native.Backend{Options: native.Options{Threads: 1}}.NewDecoder
	s, err := fakeserver.New(kind, address, o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	fmt.Println("serving", strings.Join(args, " "))
	s.Run(ctx)
	return nil
}
