// Package docs writes the reference pages under docs/ from the code: the configuration from the Config structs
// and their comments, the metrics from the collectors. Its tests fail when a page is stale, when a page names a
// test, an error or a metric that the code does not have, and when a key has no meaning written down.
//
//go:generate go run ./generate
package docs
