// Package native is the default gpu.Backend: a transformer of the Llama, Qwen2 or Qwen3 family on the processor, in Go, with
// a backward pass written by hand. It needs no library and no cgo; the arithmetic is in package kernel.
//
// The block is Llama's: RMSNorm before each half, rotary positions in Hugging Face's half-rotation layout, their angles scaled as
// Llama 3 does or not, grouped-query causal attention with heads of any even width, SwiGLU, a tied or untied head; with
// biases on queries, keys and values as in Qwen2, or RMSNorm of each query and key head as in Qwen3. A Hugging Face checkpoint
// gives the same numbers. The value head, when there is one, reads the same normalized last hidden state as the head.
//
// Shapes, by the names used in the code: n tokens of a packed batch, m of them masked in, d the hidden size,
// ff the intermediate size, hd the width of a head, q = heads*hd, kv = kvHeads*hd, qkv = q+2kv, v the
// vocabulary. Every array is row-major float32.
//
// Determinism. Work is shared among threads by rows, by sequences and by output elements. A sum is never cut.
//
// Invariant: results do not depend on the number of threads.
//
// Invariant: a sequence does not depend on its batch. Its outputs in Evaluate, and its samples in the Decoder, have
// the same bits whatever else is in the batch and however its tokens were cut into Extends.
//
// Memory. Beside the weights there is a copy of them laid out for the products. Export and SaveOptimizer write from the
// engine's own memory. For each token of a part, Accumulate holds about 2d+q+qkv+3ff floats a layer; with Options.Recompute it
// holds d a layer, and the rest of a single layer. Evaluate holds d+q+qkv of a single layer. The gradient and the moments are
// allocated by the first Accumulate and the first Step. Logits are never held for more rows than fit in a fixed scratch. The
// decoder holds 2kv floats a token and layer. It keeps the embeddings, the gains and the value head of its weights as they are,
// and the matrices (with tied embeddings also the head) once, laid out for the products. From the second version on it has the
// matrices twice: the version in use, and room for the next.
//
// Invariant: calls of one shape reuse their buffers.
package native
