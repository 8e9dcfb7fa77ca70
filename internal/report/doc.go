// Package report is what a run leaves for people: metrics.jsonl, the learning curve as a picture and in the
// terminal, and the live progress view.
package report
