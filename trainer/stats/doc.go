// Package stats holds the parts that advantages and losses share: the layout of a batch with its checks, and statistics over an action
// mask. Pure functions: no input or output, no clock, no globals.
//
// Layout: ragged rows of tokens packed end to end; row i is [offsets[i], offsets[i+1]). A per-token array has an entry for each token, a
// per-row array an entry for each row. A mask is 1 at action tokens, else 0.
package stats
