// Package report writes the results of a run for people: metrics.jsonl, the learning curve as a picture and in the
// terminal, and the live progress view.
package report
