package cli

import (
	"fmt"
	"strings"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// What became of a trajectory. Refused is one that was itself at fault and was filed in REJECTED, unless it came from a
// group that had ended; dropped is one that was in order and whose group could not be used.
const (
	fateTrained    = "trained"
	fateBaseline   = "baseline"
	fatePassedOver = "passed_over"
	fateRefused    = "refused"
	fateDropped    = "dropped"
)

// fate is what the record of steps, or REJECTED, says of one trajectory.
type fate struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	State string `json:"state"`
	// Step used the trajectory up, or is the one whose record notes its end; -1 where only REJECTED tells of it.
	Step     int64  `json:"step"`
	Sequence uint64 `json:"sequence"`
	// Reward, OldestVersion and NewestVersion are nil where the record has none.
	Reward        *float64 `json:"reward,omitempty"`
	OldestVersion *int64   `json:"oldest_version,omitempty"`
	NewestVersion *int64   `json:"newest_version,omitempty"`
	Reason        string   `json:"reason,omitempty"`
	Detail        string   `json:"detail,omitempty"`
}

// fatesOf are all that a step's record tells of.
func fatesOf(rec *checkpoint.Record) []fate {
	var out []fate
	for _, g := range rec.Groups {
		for i, m := range g.Used() {
			f := fate{
				ID: m.ID, Group: g.Group, State: fateTrained, Step: rec.Step, Sequence: m.Sequence, Reward: &m.Reward,
				OldestVersion: &m.Oldest, NewestVersion: &m.Newest,
			}
			switch {
			case i == len(g.Members):
				f.State = fateBaseline
			case m.PassedOver:
				f.State = fatePassedOver
			}
			out = append(out, f)
		}
	}
	for _, m := range rec.Rejected {
		out = append(out, fate{
			ID: m.ID, Group: groupOf(m.ID), State: endedAs(m.Reason), Step: rec.Step, Sequence: m.Sequence, Reason: string(m.Reason),
		})
	}
	return out
}

// endedAs is the state of a trajectory that was not trained on.
func endedAs(reason schemas.Reason) string {
	if reason.Refusal() {
		return fateRefused
	}
	return fateDropped
}

// groupOf is the group in a trajectory's id.
func groupOf(id string) string {
	if at := strings.LastIndexByte(id, '-'); at > 0 {
		return id[:at]
	}
	return ""
}

// text says it in words.
func (f *fate) text() string {
	var words string
	switch f.State {
	case fateTrained:
		words = fmt.Sprintf("trained on in step %d", f.Step)
	case fateBaseline:
		words = fmt.Sprintf("the greedy baseline of its group in step %d", f.Step)
	case fatePassedOver:
		words = fmt.Sprintf("passed over for others of its group in step %d", f.Step)
	case fateDropped:
		words = fmt.Sprintf("dropped with its group before step %d: %s", f.Step, f.Reason)
	default:
		words = "refused: " + f.Reason
		if f.Step >= 0 {
			words = fmt.Sprintf("refused before step %d: %s", f.Step, f.Reason)
		}
	}
	if f.Detail != "" {
		words += ", " + f.Detail
	}
	return report.Plain(words)
}
