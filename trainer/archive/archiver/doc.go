// Package archiver is the role that keeps the messages of a run's trajectory stream in a process of its own, beside the trainer.
//
// # How it works
//
//	trainer                      CONTROL                      archiver
//	asks before a step trains    keep: stream, up to 104  →   reads the messages above its last from the stream,
//	and before a purge                                        writes a segment, synced, renamed
//	waits, purges up to 104   ←  archive: kept up to 104      tells, when the segment is there for good
//
// The archiver follows the trainer's requests, and keeps the messages in the same segments as the trainer would ([messages.Archive]): its
// own files are all that it has to know, and a crash at any instant repeats some reading at most. It asks the broker before it believes
// a sequence: a stream that was made anew, or has lost messages, is another.
//
// With trainer.archive.required the trainer waits for it before a step trains, and purges nothing that it has not kept. Without, the
// stream is the room in which an archiver may be late: the trainer purges messages unkept when the stream is half full, and counts them.
//
// A run has one archiver: a new archiver takes the seat at once, and the broker refuses the words of an earlier archiver. On a single
// machine a lock keeps two from a folder.
package archiver
