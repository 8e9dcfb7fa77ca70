// Package load puts the load of many producers on a broker of its own and reports what it did and what the limit was.
//
// Broker, streams, tickets, leases, trajectories and generate calls are the ones of a run. What costs a processor or a GPU elsewhere
// is a clock here: an engine has slots that are busy for a time a token, a tool waits. So a machine without GPUs shows what the
// stream does under a thousand producers, and nothing about how fast a model samples.
package load
