// Package stats holds what advantages and losses share: the layout of a batch with its checks, and statistics
// over an action mask. Pure functions: no input or output, no clock, no globals.
//
// Layout: ragged rows of tokens packed end to end; row i is [offsets[i], offsets[i+1]). A per-token array has
// one entry a token, a per-row array one a row. A mask is 1 at action tokens, else 0.
package stats
