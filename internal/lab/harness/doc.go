// Package harness has what the benchmarks share: a broker of their own, trajectories and tickets to move, processor time, and figures with
// their tables.
package harness
