// Package python is the tool of that type: cells of Python in a sandbox, whose variables stay until the episode ends.
//
//	tools: {python: {type: python, cell_timeout: 10s}}
//
// A cell prints, and the value of its last expression is shown; a traceback has the lines of cells alone. The functions of the task's world
// can be called from cells, notepad keeps notes, and submit(x) ends the episode with its answer. The sandbox starts with the first cell.
// See package workspace, and the section sandbox for its limits.
package python
