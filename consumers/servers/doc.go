// Package servers samples with inference servers: processes such as vLLM or SGLang, on this machine or on others, that Weir
// starts or finds running. [Pool] is the [consumers.Sampler] over all of them; the wire format of a sort of server is
// a [Kind], in packages consumers/vllm and consumers/sglang.
//
// # The flow
//
//	follower ── lands DIR/vN, every byte verified ──► Pool.Swap ── the wanted version ► a keeper for each server
//	                                                                                     │
//	            start, or wait for health; read which model it has; probe its sampling   │
//	            pause; check that it still has vN-1; load vN; name it; read the name     │
//	            back; resume in any case; see it generate; admit calls ◄─────────────────┘
//
//	Pool.Generate ── a server that is fit and new enough: the episode's own, or the least loaded ──► Speaker.Generate
//	      ▲                                                                                             │
//	      └── vouched tokens go out; a call that was cut goes on with the tokens so far ◄── check the answer
//
// A server with Weir's plugin ([Transferrer]) stages a version that lies in shared memory before the pause, and loads what it staged; where
// it cannot, or that load fails, the folder is loaded.
//
// A version has a name at a server, its label, which is made anew by each Pool. So the label that a server answers with proves which
// weights this Pool had it load; nobody else has the same. Tokens are given out when it is certain which version sampled them: the
// answer has spans; or the label is the same before and after, and calls do not outlive a swap.
//
// # Faults, and how each is handled
//
// The server's settings. Log-probabilities from before the temperature, or logits; sampling defaults from the model's
// generation_config.json (top_p, top_k, temperature, penalties); top_p or top_k in spite of the call; another vocabulary
// or another model; no way to read the version; a wrong key. [probe] finds each at the start and at every restart. The server
// takes no call, and the error names the setting.
//
// The swap. A pause that never returns ends at control_timeout: the server is resumed, and the next try aborts the calls that run. A load
// that fails or hangs: the version before is loaded again; where that fails too the server is unfit. A load that reports success under
// another name, and a resume that is lost: the label is read back, and a token is sampled before calls are admitted. A folder stays while a
// server starts with it, loads it or serves with it, whichever versions the other servers have; a folder that vanishes all the same is a
// failed load. A load from shared memory that fails half way is followed by the folder's, which is of every tensor. A version that every
// server refuses is reported to the follower, which offers it again.
//
// The server's life. Dead, killed, frozen, out of memory, restarted by somebody else with other weights, replaced by another at the same
// address, driven by another Weir: transport errors, stalls and a label that is not ours. Its answers since it was last known to be
// ours is dropped, its calls go on at other servers, and it is brought up again: started anew if it is ours, probed and loaded if not.
//
// The answer. Cut by an abort, in the queue or in the middle; a reset connection; a stream without its end; fewer log-probabilities
// than tokens; a log-probability that is missing (the sentinel -9999), above 0 or not a number; tokens out of the vocabulary;
// spans that do not cover the tokens, go back, or name versions that the server never had; more tokens than asked for.
// Nothing of a broken answer is used. Before a token without a log-probability the call is cut, and drawn again from there.
//
// The load. Every server full or away: calls wait, and keep their callers waiting, as long as the caller likes. A call for a version that
// does not come waits a minute and goes elsewhere. Servers come and go by [Pool.Set] while calls run.
//
// # Limits
//
// Neither server fixes a draw by the request's seed and the token's position, as [consumers.Sampler] asks: a call that is cut
// goes on with other random numbers, and no seed is sent. Tokens go out when they are vouched for: when the
// answer is whole, and before that each time that the keeper has seen the server's version unchanged.
package servers
