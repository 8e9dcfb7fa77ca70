// Package starlark is the tool of that type: cells of Starlark, a small dialect of Python without files, sockets or clocks
// (https://github.com/bazelbuild/starlark/blob/master/spec.md), whose variables live as long as the episode.
//
//	tools: {starlark: {type: starlark, steps: 1000000}}
//
// A cell prints, and the value of its last expression is shown. while, recursion, loops at top level and the reassignment of variables are
// allowed; math, json and sum are there; functions of the task's world can be called. notepad keeps notes, and submit(x) ends the episode
// with its answer.
//
// The language cannot reach the machine, but it can use memory and time up, and inside this process it could end it: so cells run in
// processes of their own. A worker is this very program, which an init of this package turns into a worker when it is started under the
// worker's name; programs and tests that link the package can therefore all start workers. It has an empty environment and limits of its
// own, and ends when its socket does, with whatever started it. Protocol: see message.
package starlark
