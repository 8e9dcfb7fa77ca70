// Package advantage computes advantages over action masks: pure functions, no input or output, no clock, no
// globals.
//
// Layout: a batch is ragged rows of tokens packed end to end; row i is [Offsets[i], Offsets[i+1]). Per-token arrays have an entry for each
// token, per-row arrays an entry for each row. Rows of a trajectory (its segments, or an agent's steps) share Trajectory and are ordered by
// Step; trajectories of a prompt share Group.
package advantage
