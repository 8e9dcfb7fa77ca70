// Package episodes kills producers in the middle of episodes and compares what is trained on with the same tickets left alone: lengths,
// durations, tokens, calls of tools and time.
package episodes
