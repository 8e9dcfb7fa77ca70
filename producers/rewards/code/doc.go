// Package code is the reward of that type: the answer is a program in Python, and what it is worth are the hidden unit tests of the prompt
// that it passes.
//
//	reward: {type: code, partial: true}
//
// The tests are those of [data.Tests]. They run in a fresh sandbox of their own, after the episode, in which nothing of the episode is.
// What a program prints or returns is compared here, outside, so that no expected result is within its reach; statements run in a process
// beside the program's, which asks the program for its values and compares plain copies of them. A program is started once for each test
// and ends with it.
package code
