package notebook

import (
	"github.com/weir-rl/weir/producers"
)

// notation is how a notebook is written as tokens.
type notation interface {
	// open is a context with the contents of a page: its question, notes, summary and turns.
	openPage(p *page) (writing, []int32, error)
	// options bound a turn.
	turnOptions(most int) producers.GenerateOptions
	// read finds the cell in a turn; ended reports whether the turn came to its end. fault says why there is none.
	readCell(sampled []int32, ended bool) (cell, fault string)
	// summaryPrompt is about how many tokens the request for a summary has, summaryOptions bound the summary, and readSummary is its text.
	summaryPrompt() int
	summaryOptions(most int) producers.GenerateOptions
	readSummary(sampled []int32) string
	messageFormat() producers.Format
	// cell is a turn that holds a cell, as the policy would sample it.
	encodeCell(code string) ([]int32, error)
	// encodeSummary is a summary, as the policy would sample it.
	encodeSummary(text string) ([]int32, error)
}

// writing is a context that goes on. It does not change: a step holds the page that it leads to.
type writing interface {
	// output shows the result of the last turn.
	showOutput(last turn) (step, error)
	// ask asks for a summary in the place of the result of the last turn.
	askSummary(last turn) (step, error)
}

// step is how a context goes on.
type step struct {
	ids []int32
	// fresh says that ids are all of a new context, because the template writes the earlier turns in another way.
	fresh   bool
	context writing
}

// summaryRequest asks for a summary.
const summaryRequest = "Sum up what you have done, what you know and what is still to do. The conversation goes on with the task, your notepad and this summary alone."
