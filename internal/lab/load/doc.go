// Package load puts the load of many producers on a broker of its own and reports the throughput and the limit.
//
// Broker, streams, tickets, leases, trajectories and generate calls are the same as a run's. Work of a processor or a GPU elsewhere
// is a clock here: an engine has slots that are busy for a time a token, a tool waits. So a machine without GPUs shows how the
// stream does with a thousand producers, and nothing about how fast a model samples.
package load
