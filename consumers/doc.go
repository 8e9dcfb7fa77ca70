// Package consumers is the inference side: it follows the policy's weight versions and generates tokens.
//
// A [Follower] watches the weight manifests, fetches and verifies and decodes a version, and hands it to the
// [Engine]. The Engine batches calls continuously over one [gpu.Decoder]: between two steps it admits waiting calls,
// drops cancelled ones and swaps weights; in a step it extends prompts and samples one token for every sequence that is
// complete. Calls come over the message stream (Stream.ServeGenerate) and over an OpenAI-compatible HTTP server.
//
// What a sampled token depends on: the weights, the tokens before it, the temperature, and one random number made
// from the request's seed and the token's absolute position. It does not depend on what else is in the batch, on how
// a prompt was cut into steps, on what the cache held, or on the engine that served the call. A call that is retried on
// another engine with the tokens sampled so far therefore goes on as if nothing had happened. Under Swap "keep" it also
// depends on where in the sequence the weights changed, since older tokens stay in the cache as the older weights
// left them.
//
// Concurrency: one goroutine (Engine.Run) calls the Decoder, but for Prepare, which lays new weights out on the
// goroutine of Swap while generation goes on; Generate and Swap may be called from any goroutine.
// Nothing that a caller does slowly holds that goroutine up. All queues are bounded: the waiting calls by Config.Queue,
// a call's undelivered tokens by its MaxTokens.
package consumers
