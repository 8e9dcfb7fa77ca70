// Package schemas has the messages that cross the wire between the roles of a run: tickets, trajectories, group-closed markers,
// weight manifests, control, events, and the generate call.
//
//	data, err := schemas.Marshal(trajectory)
//	...
//	var got schemas.Trajectory
//	if err := schemas.Unmarshal(data, &got); err != nil {
//		return err // of another version or kind, or malformed
//	}
//	if err := got.Validate(); err != nil {
//		return err // names every broken invariant by its field
//	}
//
// Every message is a msgpack map whose first two keys are "schema" (the wire version, [Version]) and "kind" (a [Kind]). Long arrays are
// packed little-endian bytes within the map, never a msgpack element for each value. A reader refuses a message of a version or kind that
// it does not read with a reason; it never guesses. It also refuses a key that it does not know: a new field is a new version, since a
// message of which an unknown part is dropped would be half-read.
//
// The bytes are written and read by github.com/vmihailenco/msgpack. Where the library is lenient this package is strict: exact
// types, every key once, no length beyond the input. It reads integers and short texts itself.
//
// [Marshal] and [Unmarshal] write and read any message; [Encoder] and [Decoder] do the same and use their memory again, at a few
// times the cost of copying the arrays. Reading is safe on hostile bytes. A message that can be decoded may still be wrong, so
// every message has a Validate.
//
// Times are UTC. Token positions count from 0 within their segment. Policy version 0 is the starting weights; each published update adds 1.
//
// The package imports nothing of Weir's.
package schemas
