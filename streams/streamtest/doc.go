// Package streamtest starts brokers for tests and holds the conformance suite of package streams: [Run] holds
// any broker to the package's promises.
package streamtest
