package fakeserver

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main is a fake as a program, with the command line of the server that the first argument names: vllm DIR ..., or sglang
// --model-path DIR .... It returns the exit status.
func Main(args []string, newDecoder NewDecoder) int {
	if text, found, asked := answerHelp(args); asked {
		fmt.Print(text)
		if found {
			return 0
		}
		return 1
	}
	kind, address, o, err := Parse(args)
	var s *Server
	if kind == SGLang {
		o.Plugin = pluginOnPath(os.Getenv("PYTHONPATH"))
	}
	if err == nil {
		o.NewDecoder = newDecoder
		s, err = New(kind, address, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakeserver:", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	fmt.Println("serving on", s.URL())
	s.Run(ctx)
	return 0
}
