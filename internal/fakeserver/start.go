package fakeserver

import (
	"context"
	"testing"
)

// Start starts a server on a port of its own for a test, and ends it with the test. Training can use it where the
// [Options] say so.
func Start(tb testing.TB, kind Kind, o Options) *Server {
	tb.Helper()
	s, err := New(kind, "127.0.0.1:0", o)
	if err != nil {
		tb.Fatalf("start a fake %s: %v", kind, err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}
