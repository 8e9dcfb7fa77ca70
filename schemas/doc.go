// Package schemas holds what crosses the wire between the roles of a run: tickets, trajectories,
// group-closed markers, weight manifests, control, events, and the generate call.
//
// Every message is one msgpack map whose first two keys are "schema" (the wire version, [Version]) and
// "kind" (a [Kind]). Long arrays are packed little-endian bytes inside it, never one msgpack element a
// value. A reader that meets another version or kind refuses the message with a reason; it never guesses. It
// refuses a key that it does not know, too: a new field is a new version, since a message of which a part is
// dropped unseen is half-read.
//
// The bytes are written and read by github.com/vmihailenco/msgpack; this package adds what the library is lenient
// about: exact types, every key once, lengths held against the input; and it reads integers and short texts itself.
//
// [Marshal] and [Unmarshal] write and read any message; [Encoder] and [Decoder] do with memory used again, at a
// few times the cost of copying the arrays. Reading is safe on hostile bytes. What reads well may still be
// wrong: every message has a Validate that names each broken invariant by its field.
//
// Times are UTC. Token positions count from 0 within their segment. Policy version 0 is the starting
// weights; each published update adds one.
//
// The package imports nothing of Weir's.
package schemas
