// Package math is the rewards for answers of mathematics: [Equal] reports whether two answers are the same, in whatever form.
//
// An answer is a number (1,000.50, 1/2, \frac{1}{2}, 1\frac{1}{2}, 3 \times 10^5, 28\%, \$5, 5\text{ cm}), an expression (2\sqrt{3},
// x^2+1), a tuple, an interval or a union of them, a set or a list in any order, a matrix, an equation, or words. Two numbers without roots
// are compared exactly, and expressions at several points of their variables. Nothing is accepted that has not been read to its end: an
// answer that holds the right answer among others is wrong.
package math
