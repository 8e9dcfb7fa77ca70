// Package calculator is the tool of that type: it works out an expression, exactly where that can be done.
//
//	12.5 * (3 + 1/3)      125/3, about 41.66666666666667
//	0.1 + 0.2             0.3
//	2^100 // 7            181092942889747057356671886482
//
// Numbers are fractions of whole numbers of any size, so that sums, products, quotients and whole powers have no rounding; sqrt is exact
// where the root is, and a value that is not exact (sqrt(2), sin, log) is rounded to 15 digits, and marked with "about".
package calculator
