// Package consumers is the inference side: it follows the policy's weight versions and generates tokens. On the wire an
// inference consumer is called an engine.
//
// [Run] is the whole consumer. A [Follower] watches the weight manifests; it fetches, verifies and decodes a version and
// gives it to a [Sampler]. Calls come over the message stream (package streams/generate) and over an OpenAI-compatible HTTP server, and
// go to the same Sampler. [Batcher] is the Sampler that works in this process, over a [gpu.Decoder]; an inference server such as vLLM or
// SGLang can stand behind another, which needs nothing of this package but the interface:
//
//	cfg := consumers.DefaultConfig()
//	metrics, err := consumers.NewMetrics(prometheus.DefaultRegisterer)
//	...
//	loader, err := weights.NewLoader(run, weights.DefaultConfig())
//	...
//	err = consumers.Run(ctx, cfg, consumers.Deps{
//		Run: run.Name(), Stream: consumers.OnRun(run), Weights: loader, Metrics: metrics,
//		Sampler: consumers.NewBatcher(cfg, native.Backend{}.NewDecoder, metrics),
//	})
//
// A Batcher batches calls continuously: between two steps it admits waiting calls, drops cancelled calls and swaps
// weights; in a step it extends prompts and samples a token for every sequence that is complete.
//
// A token that a Batcher samples depends on the weights, the tokens before it, the temperature, and a random number made
// from the request's seed and the token's absolute position. It does not depend on the rest of the batch, on how
// a prompt was cut into steps, on the content of the cache, or on the consumer that served the call. A call that is retried on
// another consumer with the tokens sampled so far therefore goes on as if nothing had happened. Under SwapKeep the token also
// depends on where in the sequence the weights changed, since earlier tokens stay in the cache as the earlier weights
// computed them.
//
// Concurrency: a single goroutine (Batcher.Run) calls the Decoder, but for Prepare, which lays new weights out on the
// goroutine of Swap while generation goes on; Generate and Swap may be called from any goroutine.
// A slow caller does not delay that goroutine. All queues are bounded: the waiting calls by Config.Queue, a call's tokens that
// were not delivered by its MaxTokens.
package consumers
