// Package messages keeps the messages of a run's trajectory stream after the stream has purged them: every trajectory that was published,
// whatever became of it, as the bytes that were on the wire, and the markers between them.
//
// # How it works
//
// The trainer purges the stream behind its checkpoints. Before each purge it has an [Archive] keep the messages up to the purged sequence:
// the archive reads them from the stream itself, by sequence, from the end of its newest segment on. So its own files are all that it has
// to know, a crash at any instant repeats some reading at most, and neither acks nor checkpoints wait for it.
//
//	stream   … 101 102 103 104 | 105 106 …        purge up to 104: first Keep(104)
//	archive  [1-64] [65-96] [97-104]              each a file that appears whole
//
// A [Store] holds segments by name. A segment is never changed. Two neighbours of about one size are joined in a third, which takes their
// place, so that a long run has few files: where a crash leaves all three, the joined one counts and the other two are removed. The oldest
// segments go first when the archive has more bytes than it may, or they are too old.
//
// A store has one [Owner]: its mark names a run's id, and Open refuses a store with the mark of another run before anything is changed.
//
// # A segment
//
// The name says which messages: the stream's creation and how often it had lost messages, the first and the last sequence.
//
//	"WEIRSEG1"                8 bytes
//	blocks                    zstd frames: the messages one after the other, some 256 KiB a block
//	index                     a zstd frame of JSON, an Index: the SHA-256 of each block, the place of each message
//	footer                    56 bytes: offset and size of the index, its SHA-256, "WEIREND1"
//
// Every byte is under a hash or is compared: [Verify] names a segment of which one bit was flipped, and a segment that is missing between
// two others.
package messages
