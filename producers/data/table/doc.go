// Package table reads and writes the rows of data files: JSON Lines, a JSON array, and Parquet, the first two also compressed
// by gzip or zstd.
//
// A row is an object with texts, truth values, numbers (as json.Number, so that none is rounded), lists and objects, whatever
// its file: Parquet's lists of one element a level become plain lists, its maps objects. A fault names the file, the row (the
// line of a JSONL file, else the row's number, both from 1) and the field. A file that makes the Parquet reader panic is a file
// with a fault, and no more.
package table
