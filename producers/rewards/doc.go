// Package rewards scores answers and transcripts: pure functions from strings to numbers, as the field's own evaluation code computes them.
// Where projects differ (which text a normaliser deletes, which answer block counts) the difference is a named option.
package rewards
