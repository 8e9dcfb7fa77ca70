package agents

import (
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Unwritten ends an episode, for its form, whose next context the chat template does not write. What was there before it did, so that the
// policy's turn, or what a tool of its making said, is the cause: it is no failure of the machinery, which would take the episode out of
// training.
func Unwritten() error { return &producers.StoppedError{Reason: schemas.StopFormat} }
