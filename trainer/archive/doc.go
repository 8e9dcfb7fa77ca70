// Package archive keeps, beside a run's record of steps, data for people that no step needs: a line for every trajectory that ended; the
// step's numbers of each token for a sample of the trajectories trained on; and a sample of the other trajectories themselves, which leave
// the stream when their group is dropped. weir view reads it.
//
// The archive is bounded in bytes, written by a goroutine of its own, and nothing waits for it: trajectories that the goroutine cannot keep
// up with are left out and counted. A crash loses the newest lines at most.
//
// A store is a folder of segments, numbered from 1. NNNNNN.jsonl has a line of JSON for each trajectory, an Entry; NNNNNN.bin has the data
// of the lines, as zstd frames. After the lines of a part comes a line with its seal, a chain of hashes over both files: Verify finds any
// byte that was changed.
package archive
