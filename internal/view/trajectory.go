package view

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/relearn"
)

// Detail is all that is known of a trajectory.
type Detail struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	// Entries are the rows of the record of steps with the id, the oldest first; the last decides unless a step used another.
	Entries []runfolder.Listed `json:"entries"`
	// Words describe its end.
	Words string `json:"words"`
	// Missing says why the trajectory itself is not here; "" where it is.
	Missing    string   `json:"missing,omitempty"`
	Trajectory *Rollout `json:"trajectory,omitempty"`
	// Facts are the archive's, with the question and the accepted answers; nil where it has none.
	Facts *runfolder.Facts `json:"facts,omitempty"`
	// Commands are command lines about this trajectory.
	Commands []Command `json:"commands"`
}

// Command is a command line and its effect.
type Command struct {
	What string `json:"what"`
	Line string `json:"line"`
}

// Rollout is a trajectory with each token's text and numbers.
type Rollout struct {
	Task     string             `json:"task"`
	PromptID string             `json:"prompt_id"`
	Source   string             `json:"source"`
	Producer string             `json:"producer"`
	Sample   int                `json:"sample"`
	Samples  int                `json:"group_size"`
	Cursor   uint64             `json:"cursor"`
	Attempt  int                `json:"attempt"`
	Reward   float64            `json:"reward"`
	Rewards  map[string]float64 `json:"rewards"`
	Answer   string             `json:"answer"`
	Stop     string             `json:"stop"`
	Error    string             `json:"error,omitempty"`
	Started  time.Time          `json:"started_at"`
	Finished time.Time          `json:"finished_at"`
	Turns    []Move             `json:"turns"`
	Segments []Tokens           `json:"segments"`
}

// Move is a turn of the agent.
type Move struct {
	Segment int     `json:"segment"`
	Start   int     `json:"start"`
	End     int     `json:"end"`
	Reward  float64 `json:"reward"`
	Calls   []Call  `json:"calls"`
}

// Call is a tool call of a turn.
type Call struct {
	Tool      string  `json:"tool"`
	Arguments string  `json:"arguments"`
	Seconds   float64 `json:"seconds"`
	Error     string  `json:"error,omitempty"`
}

// Tokens are a segment, an entry for each token in each array. Numbers that were not recorded are nil arrays.
type Tokens struct {
	Agent       string    `json:"agent,omitempty"`
	Temperature float32   `json:"temperature"`
	IDs         []int32   `json:"ids"`
	Text        []string  `json:"text"`
	Mask        []int     `json:"mask"`
	Versions    []int32   `json:"versions"`
	Logprobs    []float32 `json:"logprobs"`
	Advantages  []float32 `json:"advantages,omitempty"`
	// Start are the log-probabilities under the policy at the step's start, Last are the log-probabilities when the token was last trained on.
	Start []float32 `json:"start,omitempty"`
	Last  []float32 `json:"last,omitempty"`
}

// readDetail tells of a trajectory.
func (f *shownRun) readDetail(ctx context.Context, id string) (*Detail, error) {
	d := &Detail{ID: id, Entries: f.folder.Steps.Find(id)}
	d.Facts = f.folder.Archive.FactsOf(id, runfolder.DecidingSequence(d.Entries))
	t, why := f.folder.FindTrajectory(ctx, d.Entries, id)
	d.Commands = f.commandLines(id, t)
	if t == nil && len(d.Entries) == 0 && errors.Is(why, runfolder.ErrUnknown) {
		if !f.folder.Steps.Issued(id, f.folder.GroupSize()) {
			return nil, why
		}
		why = nil
	}
	d.Words = runfolder.DescribeTicket(d.Entries, t != nil)
	d.Group = groupOfTrajectory(d.Entries, t, id)
	if t == nil {
		d.Missing = explainMissing(why)
		return d, nil
	}
	codec, err := f.folder.Tokenizer()
	if err != nil {
		return nil, fmt.Errorf("read the tokenizer: %w", err)
	}
	d.Trajectory = newRollout(t, codec)
	at := slices.IndexFunc(d.Entries, func(e runfolder.Listed) bool { return e.Fate == runfolder.FateTrained.String() })
	if at < 0 {
		return d, nil
	}
	numbers, err := f.folder.Archive.Numbers(id, int64(d.Entries[at].Step))
	d.Trajectory.addNumbers(numbers)
	return d, err
}

// explainMissing says why a trajectory's text is not at hand.
func explainMissing(why error) string {
	switch {
	case why == nil:
		return "No trajectory has come of this ticket, or its producer closed it without one."
	case errors.Is(why, runfolder.ErrNotKept):
		return runfolder.NotKept
	}
	return why.Error()
}

func groupOfTrajectory(entries []runfolder.Listed, t *schemas.Trajectory, id string) string {
	switch {
	case t != nil:
		return t.Group
	case len(entries) > 0:
		return entries[0].Group
	}
	return runfolder.GroupOfTicket(id)
}

// newRollout reads a trajectory; codec may be nil, and then tokens are shown by their ids.
func newRollout(t *schemas.Trajectory, codec tokenizer.Codec) *Rollout {
	r := &Rollout{
		Task: t.Task, PromptID: t.PromptID, Source: t.Source, Producer: t.Producer, Sample: t.Sample, Samples: t.GroupSize, Cursor: t.Cursor,
		Attempt: t.Attempt, Reward: finiteOr0(t.Reward), Rewards: map[string]float64{}, Answer: t.Answer, Stop: string(t.Stop), Error: t.Error,
		Started: t.StartedAt, Finished: t.FinishedAt, Turns: turnsOf(t),
	}
	for name, x := range t.Rewards {
		r.Rewards[name] = finiteOr0(x)
	}
	for i := range t.Segments {
		s := &t.Segments[i]
		mask := make([]int, len(s.ActionMask))
		for k, on := range s.ActionMask {
			mask[k] = int(on)
		}
		r.Segments = append(r.Segments, Tokens{
			Agent: s.Agent, Temperature: s.Temperature, IDs: s.Tokens, Text: tokenTexts(s.Tokens, codec), Mask: mask, Versions: s.Versions, Logprobs: finitesOr0(s.Logprobs),
		})
	}
	return r
}

// addNumbers puts the step's numbers beside the tokens.
func (r *Rollout) addNumbers(all []archive.Numbers) {
	for _, n := range all {
		if n.Segment < 0 || n.Segment >= len(r.Segments) || len(n.Advantages) != len(r.Segments[n.Segment].IDs) {
			continue
		}
		s := &r.Segments[n.Segment]
		s.Advantages, s.Start, s.Last = n.Advantages, n.Start, n.Last
	}
}

// turnsOf are a trajectory's turns.
func turnsOf(t *schemas.Trajectory) []Move {
	out := make([]Move, 0, len(t.Turns))
	for i := range t.Turns {
		u := &t.Turns[i]
		m := Move{Segment: u.Segment, Start: u.Start, End: u.End, Reward: finiteOr0(u.Credit()), Calls: []Call{}}
		for _, call := range u.Calls {
			m.Calls = append(m.Calls, Call{call.Tool, call.Arguments, call.Duration.Seconds(), call.Error})
		}
		out = append(out, m)
	}
	return out
}

// tokenTexts are the texts of tokens: joined, they are the text that Decode returns. A character whose bytes several tokens share stands with
// the last of them.
func tokenTexts(ids []int32, codec tokenizer.Codec) []string {
	out := make([]string, len(ids))
	if codec == nil {
		for i, id := range ids {
			out[i] = fmt.Sprintf("⟨%d⟩", id)
		}
		return out
	}
	stream := tokenizer.NewStream(codec)
	for i, id := range ids {
		out[i] = stream.Next(id)
	}
	if n := len(out); n > 0 {
		out[n-1] += stream.Rest()
	}
	return out
}

// finiteOr0 is x, 0 where JSON has no number for it.
func finiteOr0(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

func finitesOr0(x []float32) []float32 {
	for _, v := range x {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			out := make([]float32, len(x))
			for i := range x {
				out[i] = float32(finiteOr0(float64(x[i])))
			}
			return out
		}
	}
	return x
}

// commandLines are command lines about a trajectory, nil where it is not kept.
func (f *shownRun) commandLines(id string, t *schemas.Trajectory) []Command {
	flags := f.Flags
	if flags != "" {
		flags = " " + flags
	}
	out := []Command{
		{"read it on a terminal", "weir trajectory " + Quote(id) + flags},
		{"as JSON, with all tokens", "weir trajectory " + Quote(id) + flags + " -o json"},
	}
	if t == nil || t.NewestVersion() < 0 {
		return out
	}
	again := Command{fmt.Sprintf("run it again with its seed, prompt and version %d: the same tokens", t.NewestVersion()), "weir agent run --replay " + Quote(id) + flags}
	steps, err := relearn.Versions(f.Checkpoints)
	switch {
	case err != nil || len(steps) == 0:
		return out
	case !slices.Contains(steps, t.NewestVersion()):
		again.What = fmt.Sprintf("run it again with its seed and prompt, and the newest version: version %d is not kept", t.NewestVersion())
		again.Line += fmt.Sprintf(" --step %d", slices.Max(steps))
	case t.OldestVersion() != t.NewestVersion():
		again.What = fmt.Sprintf("run it again with its seed and prompt, and version %d alone: versions %d to %d sampled it", t.NewestVersion(), t.OldestVersion(), t.NewestVersion())
	}
	return append(out, again)
}
