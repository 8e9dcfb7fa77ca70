// Package parts holds an advantage, an engine and a sampler of your own, as docs/extending.md shows them.
package parts
