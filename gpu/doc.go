// Package gpu defines the interfaces of a model's implementation: an [Engine] trains the policy, a [Decoder] samples from it,
// and a [Backend] makes both. The engine knows the model, Go knows the learning: a packed micro-batch goes up,
// log-probabilities, entropies and values come back, and the gradients of the loss with respect to these go down. Advantages
// and losses are therefore written once, in trainer/advantage and trainer/loss, for every engine.
//
// Backends: gpu/native (pure Go) and gpu/torch (processes of PyTorch). Checkpoints are Hugging Face folders.
//
// A decoder is made over weights that the caller has, and samples inside the engine:
//
//	model, err := hf.Load(dir)
//	...
//	var backend gpu.Backend = native.Backend{}
//	decoder, err := backend.NewDecoder(model.Config, model.Weights, gpu.DecoderOptions{Slots: 1, MaxTokens: 128})
//	...
//	slot, err := decoder.Open()
//	...
//	next, err := decoder.Extend(ctx, []gpu.Extension{{Slot: slot, Tokens: prompt, Sample: true, Temperature: 1, U: rand.Float64()}})
//	// next[0].Token, next[0].Logprob
//
// One optimizer step over the parts of a minibatch, with a loss that is the negative sum of log-probabilities:
//
//	err := engine.Accumulate(ctx, parts, func(i int, o *gpu.Outputs) (*gpu.Gradients, error) {
//		g := &gpu.Gradients{Logprobs: make([]float32, len(o.Logprobs))}
//		for t, m := range parts[i].Mask {
//			g.Logprobs[t] = -float32(m) // the gradient of the loss with respect to o.Logprobs[t]
//		}
//		return g, nil
//	})
//	if err != nil {
//		return errors.Join(err, engine.Discard(ctx))
//	}
//	stats, err := engine.Step(ctx, gpu.StepOptions{LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1})
//
// Weights and moments leave and come as folders of safetensors files, which hashes, deltas and other programs read; they
// never pass through the caller's memory:
//
//	pending, err := engine.Export(ctx, dir, gpu.ExportOptions{DType: gpu.BFloat16, ShardBytes: 1 << 30})
//	…
//	files, err := pending.Wait(ctx)
//
// Alignment, everywhere: entry i of an output speaks of token i given the tokens before it in its sequence.
// It comes from the hidden state at i-1. The first token of a sequence has none: its entries are 0.
//
// The package imports nothing of Weir's but schemas.
package gpu
