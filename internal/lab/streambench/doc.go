// Package streambench measures what crosses the broker: trajectories from producers into batches beside bare
// JetStream, the codec beside a copy, tickets, generate calls. Ratios are of things that took turns in one run: a
// machine that others use changes its speed within minutes, and absolute numbers with it.
package streambench
