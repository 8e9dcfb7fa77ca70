package agents

import (
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Unwritten ends an episode, for its form, whose next context the chat template does not write. The context existed before it, so that the
// policy's turn, or the answer of a tool that the policy made, is the cause: it is no failure of the machinery, which would take the
// episode out of training.
func Unwritten() error { return &producers.StoppedError{Reason: schemas.StopFormat} }
