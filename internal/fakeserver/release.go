package fakeserver

import (
	"cmp"
	"strconv"
	"strings"
)

// Release is the number of the release that is stood in for; "" is VLLM27 or SGLang18. Comments that cite a file name the release whose
// published package it was read in; paths are below vllm/ and below sglang/srt/.
type Release string

// The releases that differ in routes or fields that Weir uses. VLLM24 is older than the releases that Weir takes.
const (
	// VLLM24 does not report the version of its weights.
	VLLM24 Release = "0.24.0"
	// VLLM27 has /weight_info (entrypoints/serve/dev/rlhf/api_router.py:223).
	VLLM27 Release = "0.27.0"
	// VLLM30 has --enable-scale-out (entrypoints/scale_out/factories.py:72).
	VLLM30 Release = "0.30.0"
	// VLLM32 sends the end of an aborted call (entrypoints/scale_out/token_in_token_out/serving.py:583) and which weights sampled which
	// token (:631), names tokens by integers (:800), and computes checksums (entrypoints/rl/online/api_router.py).
	VLLM32 Release = "0.32.0"
	// VLLM33 sends every candidate that the engine returned (entrypoints/scale_out/token_in_token_out/serving.py:917).
	VLLM33 Release = "0.33.0"

	// SGLang10 has no checksums (utils/weight_checker.py) and no cache_salt.
	SGLang10 Release = "0.5.10"
	// SGLang17 has checksums (entrypoints/http_server.py:1486) and no cache_salt.
	SGLang17 Release = "0.5.17"
	// SGLang18 has cache_salt (managers/io_struct.py:337).
	SGLang18 Release = "0.5.18"
	// SGLang19 reports which weights sampled which token (utils/weight_versions.py).
	SGLang19 Release = "0.5.19"
	// SGLang23 answers no more at /get_weight_version (entrypoints/http_server.py:802), and refuses a load whose cache cannot be emptied
	// (managers/scheduler_components/weight_updater.py:119), which ended a release before 0.5.22.
	SGLang23 Release = "0.5.23"
)

// orOldest is r, or where r is "" the oldest release of a kind whose answers name their weights as Weir needs.
func (r Release) orOldest(kind Kind) Release {
	if kind == SGLang {
		return cmp.Or(r, SGLang18)
	}
	return cmp.Or(r, VLLM27)
}

// since reports whether the release is first itself or a later release.
func (r Release) since(first Release) bool {
	have, want := strings.Split(string(r), "."), strings.Split(string(first), ".")
	for i := range min(len(have), len(want)) {
		a, _ := strconv.Atoi(have[i]) // a release is numbers alone
		b, _ := strconv.Atoi(want[i])
		if a != b {
			return a > b
		}
	}
	return true
}

// is reports whether the server is of a kind and not older than a release of it.
func (s *Server) is(kind Kind, first Release) bool {
	return s.kind == kind && s.o.Release.orOldest(kind).since(first)
}

// tellsVersions reports whether answers say which weights sampled which token.
func (s *Server) tellsVersions() bool {
	return !s.o.NoSpans && (s.is(VLLM, VLLM32) || s.is(SGLang, SGLang19))
}

// scaleOut is the argument that a vLLM from 0.30.0 on knows, and none before.
const scaleOut = "--enable-scale-out"

// tellsAborts reports whether a stream sends an abort's end: vLLM before 0.32.0 leaves out a piece without tokens
// (0.27.0, entrypoints/scale_out/token_in_token_out/serving.py:394), and so the end that it carries.
func (s *Server) tellsAborts() bool { return s.kind == SGLang || s.is(VLLM, VLLM32) }
