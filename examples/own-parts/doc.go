// Package parts holds an advantage, an engine and a sampler of one's own, as docs/extending.md shows them.
package parts
