package selection

// Turn is a turn as the void rule sees it.
type Turn struct {
	// Called is set if the turn called a tool, Answered if it gave the final answer.
	Called, Answered bool
}

// Void reports whether a trajectory has a turn that neither called a tool nor answered: half a code block, an end too early. Such turns
// come of tokens far from the model's training data; their trajectories leave the loss (SimpleTIR, arXiv 2509.02479, section 3.2).
func Void(turns []Turn) bool {
	for _, t := range turns {
		if !t.Called && !t.Answered {
			return true
		}
	}
	return len(turns) == 0
}

// Drop clears the action mask of rows, so that they contribute nothing.
func Drop(offsets []int, mask []uint8, rows ...int) {
	for _, i := range rows {
		clear(mask[offsets[i]:offsets[i+1]])
	}
}
