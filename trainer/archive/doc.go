// Package archive keeps, beside a run's record of steps, what people look at and no step needs: a line for every trajectory that
// ended, of a sample of those trained on what the step computed for each token, and of a sample of the others the trajectory itself,
// which leaves the stream when its group is dropped. weir view reads it.
//
// It is bounded in bytes, written by a goroutine of its own, and nothing waits for it: what that cannot keep up with is left out and
// counted. A crash loses the newest lines at most.
//
// A store is a folder of segments, numbered from 1. NNNNNN.jsonl has a line of JSON for each trajectory, an Entry; NNNNNN.bin has
// what the lines point at, as zstd frames.
package archive
