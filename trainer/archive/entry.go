package archive

import (
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
)

// The fates of an entry's trajectory.
const (
	FateTrained    = "trained"
	FateBaseline   = "baseline"
	FatePassedOver = "passed_over"
	FateRejected   = "rejected" // Reason has the reason
)

// Entry is a trajectory that ended. Times are in milliseconds since 1970, 0 where they are not known.
type Entry struct {
	ID       string `json:"id"`
	Sequence uint64 `json:"seq"`
	// Step used the trajectory, or was in hand when it was refused.
	Step   int64          `json:"step"`
	Fate   string         `json:"fate"`
	Reason schemas.Reason `json:"reason,omitempty"`
	Detail string         `json:"detail,omitempty"`
	Task   string         `json:"task,omitempty"`
	Source string         `json:"source,omitempty"`
	Prompt string         `json:"prompt,omitempty"`
	// Question is the beginning of the prompt's text, Accepted the beginning of the accepted answers, with " | " between them; "" where
	// the prompt is not known.
	Question string `json:"question,omitempty"`
	Accepted string `json:"accepted,omitempty"`
	// Producer made it, Answer is the beginning of its answer.
	Producer string             `json:"producer,omitempty"`
	Answer   string             `json:"answer,omitempty"`
	Stop     schemas.StopReason `json:"stop,omitempty"`
	// Reward is the outcome reward.
	Reward  float64 `json:"reward"`
	Tokens  int     `json:"tokens"`
	Sampled int     `json:"sampled"`
	Turns   int     `json:"turns"`
	// Issued is when its ticket was issued, Started and Finished bound the rollout, Came is when the trainer read it, Ended when it was
	// used or refused.
	Issued   int64 `json:"issued,omitempty"`
	Started  int64 `json:"started,omitempty"`
	Finished int64 `json:"finished,omitempty"`
	Came     int64 `json:"came,omitempty"`
	Ended    int64 `json:"ended,omitempty"`
	// Spans are the rollout in order, two numbers each: a policy version and how many tokens in a row it sampled, or ToolSpan and how
	// many milliseconds a turn's tools took.
	Spans []int64 `json:"spans,omitempty"`
	// Frame is the offset and size of the entry's zstd frame in the segment's .bin; nil where only the line is kept. At is where the
	// entry's own bytes begin in the decompressed frame, and Size their number: Numbers of a trajectory that was trained on, the message of
	// a trajectory that was not.
	Frame []int64 `json:"frame,omitempty"`
	At    int     `json:"at,omitempty"`
	Size  int     `json:"size,omitempty"`
	// Skipped counts trajectories before this one that the writer could not keep up with.
	Skipped int `json:"skipped,omitempty"`
}

// ToolSpan stands in Spans for the time of tools.
const ToolSpan = -1

// maxAnswer bounds Entry.Answer and Entry.Accepted, in bytes; maxQuestion bounds Entry.Question.
const (
	maxAnswer   = 160
	maxQuestion = 200
)

// Origin is what the trainer knows of a message beside its content: its ticket's prompt, when the ticket was issued and when the trainer
// read the message.
type Origin struct {
	// Question is the prompt's text, Accepted are the answers that the reward accepts; "" and nil where the ticket is not known, as after a
	// restart.
	Question     string
	Accepted     []string
	Issued, Came time.Time
}

// newEntry returns a trajectory's entry.
func newEntry(t *schemas.Trajectory, sequence uint64, origin Origin, step int64, ended time.Time) Entry {
	return Entry{
		ID: t.ID, Sequence: sequence, Step: step, Producer: t.Producer,
		Task: t.Task, Source: t.Source, Prompt: ClipPrompt(t.PromptID),
		Question: clipText(origin.Question, maxQuestion), Accepted: clipText(strings.Join(origin.Accepted, " | "), maxAnswer),
		Answer: clipText(t.Answer, maxAnswer), Stop: t.Stop, Reward: finiteOrZero(t.Reward),
		Tokens: t.Tokens(), Sampled: t.ActionTokens(), Turns: len(t.Turns),
		Issued: unixMillis(origin.Issued), Came: unixMillis(origin.Came),
		Started: unixMillis(t.StartedAt), Finished: unixMillis(t.FinishedAt), Ended: unixMillis(ended),
		Spans: rolloutSpans(t),
	}
}

// ClipPrompt is a prompt's id as Entry.Prompt has it.
func ClipPrompt(id string) string { return clipText(id, maxAnswer) }

// memberFate returns the fate of a member of a batch.
func memberFate(m *batch.Member, baseline bool) string {
	switch {
	case baseline:
		return FateBaseline
	case m.PassedOver:
		return FatePassedOver
	}
	return FateTrained
}

// maxSpans bounds the numbers in Entry.Spans: further spans of a very long rollout are left out.
const maxSpans = 256

// rolloutSpans returns Entry.Spans of a rollout, turn by turn.
func rolloutSpans(t *schemas.Trajectory) []int64 {
	var out []int64
	for i := range t.Turns {
		u := &t.Turns[i]
		if u.Segment < 0 || u.Segment >= len(t.Segments) || len(out) >= maxSpans {
			continue
		}
		versions := t.Segments[u.Segment].Versions
		for at := max(u.Start, 0); at < min(u.End, len(versions)); {
			end := at + 1
			for end < min(u.End, len(versions)) && versions[end] == versions[at] {
				end++
			}
			if v := versions[at]; v != schemas.NoVersion {
				out = append(out, int64(v), int64(end-at))
			}
			at = end
		}
		if took := toolTime(u); took > 0 {
			out = append(out, ToolSpan, took.Milliseconds())
		}
	}
	return out
}

// toolTime is how long a turn waited for its tools.
func toolTime(u *schemas.Turn) time.Duration { return u.Duration() }

func unixMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
