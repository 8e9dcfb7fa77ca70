// Package streamtest starts brokers for tests and holds the conformance suite of package streams: [Run] holds
// any broker to what the package promises.
package streamtest
