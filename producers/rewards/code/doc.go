// Package code is the reward of that type: the answer is a program in Python, and its reward is the share of the prompt's hidden unit tests
// that it passes.
//
//	reward: {type: code, partial: true}
//
// The tests are of [data.Tests]. They run in a fresh sandbox of their own, after the episode, in which nothing of the episode is. A
// program's output or result is compared here, outside, so that no expected result is within its reach; statements run in a process beside
// the program's, which asks the program for its values and compares plain copies of them. A program is started once for each test and ends
// with it.
package code
