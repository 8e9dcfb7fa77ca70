package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-rl/weir/streams"
)

// archiveStanding is how far the role weir archive has kept the messages that the trainer asked for.
type archiveStanding struct {
	// Asked and Kept are sequences of the trajectory stream.
	Asked uint64 `json:"asked"`
	Kept  uint64 `json:"kept"`
	// Owner is the process that has the archive, "" where none has ever come; Failure says why it keeps nothing.
	Owner   string `json:"owner,omitempty"`
	Failure string `json:"failure,omitempty"`
	// Gaps are the messages that had left the stream before they were kept.
	Gaps []streams.Gap `json:"gaps,omitempty"`
}

// readArchive reads how the archive stands; nil where no trainer has asked a role to keep messages.
func readArchive(ctx context.Context, run *streams.Run) (*archiveStanding, error) {
	asked, kept, err := run.KeepState(ctx)
	if err != nil || asked == nil {
		return nil, err
	}
	out := &archiveStanding{Asked: asked.Sequence, Kept: kept.UpTo(asked)}
	if kept != nil {
		out.Owner, out.Failure, out.Gaps = kept.Owner, kept.Failure, kept.Gaps
	}
	return out, nil
}

// String says it in a line.
func (a *archiveStanding) String() string {
	if a.Owner == "" {
		return fmt.Sprintf("none has come: messages up to %d are to be kept; start weir archive", a.Asked)
	}
	text := fmt.Sprintf("kept up to %d", a.Kept)
	if a.Kept < a.Asked {
		text += fmt.Sprintf(" of %d that are asked for: see whether %s still runs", a.Asked, a.Owner)
	}
	if a.Failure != "" {
		text += "; " + a.Failure
	}
	var gaps []string
	for _, g := range a.Gaps {
		gaps = append(gaps, fmt.Sprintf("%d to %d", g.After+1, g.Last))
	}
	if len(gaps) > 0 {
		text += "; gone before they were kept: " + strings.Join(gaps, ", ")
	}
	return text
}
