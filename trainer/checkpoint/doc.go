// Package checkpoint keeps the state that a trainer needs to go on after being killed at any instant: an atomic unit for each step,
// complete or not there at all.
//
// A store is a folder:
//
//	step_000012/            one checkpoint
//	  config.json, model.safetensors, tokenizer.json   a Hugging Face model folder; where the policy came from one, its
//	                         files but the weights are that folder's as they were, and source.json says how its weights lay
//	  value_head.safetensors the value head of a critic that shares the policy's trunk; if any
//	  optimizer.safetensors  the moments
//	  critic/                the same files for a critic that is a network of its own; if any
//	  state.json             [State]: versions, counters, open groups, ledger, random state
//	  record.json            [Record]: what the step trained on
//	  pending.bin            delivered messages that wait for their group and are gone from the stream; if any
//	  MANIFEST.json          size and SHA-256 of every other file; written last
//	  PASSED_OVER            put into a light checkpoint that a start has passed over; the run went back behind it
//	steps.jsonl             the record of every step of the run, kept when checkpoints are pruned
//	batches/                the batches of the newest steps, as they were trained on
//	purged.json             how far the stream was purged
//	LOCK                    held by the trainer that uses the folder
//
// Engines write and read models and moments: this package reads them only to hash them, a piece at a time.
//
// A checkpoint is written beside its place, synced, renamed into place and its parent synced, in that order. A checkpoint that is cut short
// or changed is recognised, named and passed over; an older checkpoint is used in its place only while the stream still holds the messages
// that it needs.
package checkpoint
