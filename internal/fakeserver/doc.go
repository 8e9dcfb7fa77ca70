// Package fakeserver stands in for vLLM and SGLang in tests: servers with their routes and wire formats, old and new, whose tokens
// and log-probabilities are a decoder's, so that a run can be trained through a fake. Faults are injected singly.
//
// The behaviour of a fake was read in the published packages: [Release] lists the releases, and each behaviour names the release, the
// file and the line. A test against a fake shows that Weir does as it means to, and not that a real server does as the fake.
//
// A [Server] listens for a test in its own process:
//
//	s := fakeserver.Start(t, fakeserver.VLLM, fakeserver.Options{NewDecoder: native.Backend{}.NewDecoder, Dir: folder})
//	hit := s.Inject("503 /pause", 1)
//	...
//	<-hit
//
// The program in fake is the same as a process, with the command lines of both servers.
package fakeserver
