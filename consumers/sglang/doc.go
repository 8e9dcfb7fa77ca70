// Package sglang is SGLang's wire format: how a server is started, asked for tokens, paused, given weights and
// asked for the label of its weights. [Kind] is its part for package servers.
//
// Calls go to POST /generate with token ids; tokens and log-probabilities come from output_token_logprobs, in streams whose events repeat
// the answer from its start and in streams whose events have the new tokens alone. A server with weight_versions keeps calls through a swap
// where inference.swap is keep (in_place); otherwise they are cut, for retracted calls find the cache of the weights before.
package sglang
