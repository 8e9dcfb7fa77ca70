// Package vllm is vLLM's wire format: how one of its servers is started, asked for tokens, paused, given weights and asked
// which it has. [Kind] is what package servers needs of it.
//
// Calls go to the route of tokens, POST /inference/v1/generate, where the server has it, and to POST /v1/completions otherwise,
// with token ids both ways either way. Both forms of log-probabilities are read: with token_id, and the older with the token as
// "token_id:9707". The routes of control need VLLM_SERVER_DEV_MODE=1. A server that does not tell its version by GET /weight_info (before
// 0.27.0) is refused: nothing else proves which weights it has.
package vllm
