// Package harness has the shared parts of the benchmarks: a broker of their own, trajectories and tickets to move, processor time, and figures with
// their tables.
package harness
