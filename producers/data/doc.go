// Package data turns the rows of data files into prompts: which column has which role ([Mapping]), which rows are left out and
// why ([Clean]), which split a row belongs to ([Divide]), and in which order a split is asked ([Order]).
//
// Reading a data set is a function of its files and settings alone: every role of a run reads the same, on every machine.
package data
