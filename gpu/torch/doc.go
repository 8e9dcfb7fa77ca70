// Package torch is a gpu.Backend over a group of PyTorch processes, the ranks: the model, its gradient and its optimizer live
// there, on GPUs or on the processor, and Go keeps the learning. One Python program, which the binary carries, runs in each; it
// needs PyTorch and nothing else: no torchrun, no pickle, and Transformers for models alone that only Transformers builds.
//
// # Frames
//
// Each rank has one connection: its end of a socket pair, which the process inherits as file descriptor 3. On another machine
// weir torch-worker has the other end, and passes what it reads to and from a TLS connection, on which both sides prove that they have
// the same secret; see [Serving]. Both directions carry frames:
//
//	u32 little-endian     length of the header
//	header                JSON: {"id":7,"op":"forward","keep":true,"bufs":[["tokens","i32",2048],["mask","u8",2048]]}
//	buffers               little-endian numbers, in the order of "bufs": i32, f32, f64 or u8
//
// An answer has its request's id. A rank does one operation after another, in order. Beside the answers it sends, with id 0,
// {"op":"backward","done":118}: that it is alive, and how many pieces of work it has done, so that slow is told from stuck. An
// error is {"id":7,"error":{"kind":"oom","message":...,"trace":...}}. What a process prints is no part of this, and is kept for the
// error that names its end.
//
// # The flow
//
//	Go, to rank i                        the rank                                  back
//	(sources)                            the program itself                        -
//	greet                                -                                         versions, devices
//	meet   rank, world, options          rank 0 opens the store                    port
//	open   port                          the ranks join; the model is made         attention, device
//	load   dir, files                    reads its part of the files               -
//	forward  tokens, offsets, mask,      one part through the model; with keep     log-probabilities, entropies,
//	         temperature, groups         the graph is held                         sums of squares, values
//	backward gradients of those, names   adds to the gradient                      -
//	step   AdamW's options               gradients are added up over the ranks,    norm, skipped
//	                                     clipped, and a step is taken
//	save   dir, files and headers        copies, answers, then writes              steps; later: written
//	discard, reset, memory               -                                         -
//
// A sampler is a group of one rank with other operations:
//
//	prepare  dir, files                  a thread reads them beside those in use   at once; later: written
//	commit   number                      they are in use                           -
//	extend   slots, starts, tokens,      the tokens are appended to the caches     tokens, log-probabilities,
//	         temperature, u, top         from their starts on; one is drawn        the most likely ones
//
// Parts are dealt in rounds: round k has parts k*R to k*R+R-1, a rank each, and a round that is short is filled with parts of no
// tokens, so that all ranks do the same operations in the same order, as collective operations need. For the same reason each is told
// how often the others of the round run the model, groups, and of which outputs any of them has gradients, names: where the model is cut
// among them, a rank with less makes it up with runs of no tokens and gradients of zero. Gradients are sums over the parts: nothing is
// divided by the number of ranks.
//
// Weights and moments pass through folders alone. Go checks a folder before a rank reads it, and lays an export out, headers
// included, so that the files are, byte for byte, what gpu/native writes of the same numbers.
//
// A decoder's process starts with Start, so that who waits for it can give it up. What a decoder writes for its process lies in a
// scratch folder of its own, which goes with it; one whose maker was killed goes with the next start in the same place.
//
// The random number that draws a token comes with the request, so that it is the consumer's to fix. A sampler whose process ends
// is given another, and its caches are computed again.
//
// # When a rank fails
//
// A rank that dies, runs out of memory, cannot read the weights that others may have read, is silent for longer than it may be, or does not come on within an operation, ends the
// group: the others are killed, and every call fails with gpu.ErrLost and the first cause. The trainer goes back to its newest
// checkpoint; Import makes a new group. A rank whose connection closes ends itself, so that nothing outlives the process that
// started it, however that ended.
package torch
