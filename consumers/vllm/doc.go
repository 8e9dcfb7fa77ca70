// Package vllm is vLLM's wire format: how a server is started, asked for tokens, paused, given weights and asked
// for the label of its weights. [Kind] is its part for package servers.
//
// Calls go to the route of tokens, POST /inference/v1/generate, where the server has it, and to POST /v1/completions otherwise, with token
// ids both ways either way; the first call of the probe decides. Both forms of log-probabilities are read: with token_id, and the
// older with the token as "token_id:9707". The routes of control need VLLM_SERVER_DEV_MODE=1. A server that does not answer with
// its version at GET /weight_info (before 0.27.0) is refused: nothing else proves which weights it has.
package vllm
