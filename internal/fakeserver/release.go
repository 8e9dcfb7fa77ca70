package fakeserver

// Release is which release of a server is stood in for. The paths in this package's comments are those of vLLM's main of 2026-08-17
// (017e9f4448, below vllm/) and of SGLang's of 2026-08-18 (0077f84d3, below python/sglang/srt/), unless they say otherwise.
type Release string

// The releases.
const (
	// August is vLLM's main of 2026-08-17, or SGLang's of 2026-08-18.
	August Release = ""
	// Earlier is a vLLM of June 2026, which does not tell the version of its weights, or an SGLang of July 2026, which knows no
	// cache_salt.
	Earlier Release = "earlier"
	// Later is a vLLM of September 2026, whose route of tokens needs --enable-scale-out and whose aborts tell their end, or an SGLang
	// from 2026-08-24 on. Answers of both say which weights sampled which token: SGLang's by its pull request 35926. vLLM's
	// protocol.py has the field, and no release is known that fills it.
	Later Release = "later"
)

// spans says whether answers say which weights sampled which token.
func (s *Server) spans() bool { return s.o.Release == Later && !s.o.NoSpans }

// scaleOut is the argument that a vLLM of September 2026 knows (its pull request 55176), and none before.
const scaleOut = "--enable-scale-out"

// abortFinish says whether a stream tells an abort's end: vLLM leaves out a piece without tokens
// (entrypoints/scale_out/token_in_token_out/serving.py:416), and so the end that it carries, up to August 2026.
func (s *Server) abortFinish() bool { return s.kind == SGLang || s.o.Release == Later }
