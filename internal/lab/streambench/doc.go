// Package streambench measures the traffic of a broker: trajectories from producers into batches beside bare
// JetStream, the codec beside a copy, tickets, generate calls. Ratios are of things that took turns in a single run: a
// machine that others use changes its speed within minutes, and absolute numbers with it.
package streambench
