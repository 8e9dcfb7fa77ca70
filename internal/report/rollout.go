package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Rollout is a trajectory for people to read.
type Rollout struct {
	ID       string `json:"id"`
	Group    string `json:"group"`
	Sample   int    `json:"sample"`
	Samples  int    `json:"group_size"`
	Task     string `json:"task"`
	PromptID string `json:"prompt_id"`
	Source   string `json:"source"`
	Producer string `json:"producer"`
	// Reward is the outcome reward, Rewards its components before weighting.
	Reward  float64            `json:"reward"`
	Rewards map[string]float64 `json:"rewards"`
	// AgentRewards are the outcome rewards of single agents; an agent that is not named has Reward.
	AgentRewards map[string]float64 `json:"agent_rewards,omitempty"`
	Answer       string             `json:"answer"`
	Stop         schemas.StopReason `json:"stop"`
	Error        string             `json:"error,omitempty"`
	// OldestVersion and NewestVersion are the policy versions that sampled a token; -1 where none was sampled.
	OldestVersion int64     `json:"oldest_version"`
	NewestVersion int64     `json:"newest_version"`
	Tokens        int       `json:"tokens"`
	Sampled       int       `json:"sampled_tokens"`
	StartedAt     time.Time `json:"started_at"`
	FinishedAt    time.Time `json:"finished_at"`
	// Forked says whose first turns it has; nil where it began by itself.
	Forked *RolloutForked `json:"forked,omitempty"`
	// Recorded says which trajectory of another run it is; nil where it was played for its ticket.
	Recorded *RolloutRecorded `json:"recorded,omitempty"`
	// Values are the values of the states that the turns began in, an entry for each turn; nil where nobody estimated them.
	Values []RolloutValue `json:"values,omitempty"`
	Parts  []RolloutPart  `json:"parts"`
	// Segments are the tokens as they were trained on.
	Segments []RolloutSegment `json:"segments"`
}

// Who speaks in a part of a rollout.
const (
	RolePrompt      = "prompt"      // the context that the episode began with
	RoleContext     = "context"     // the beginning of a later segment: the context as the agent wrote it anew
	RolePolicy      = "policy"      // sampled by the policy, and trained on
	RoleTool        = "tool"        // a call
	RoleObservation = "observation" // shown to the agent
)

// RolloutPart is a stretch of a rollout by the same speaker.
type RolloutPart struct {
	Role string `json:"role"`
	// Segment is the segment of the text; Turn counts the agent's moves from 0, and is -1 of other parts.
	Segment int    `json:"segment"`
	Turn    int    `json:"turn"`
	Text    string `json:"text"`
	// Tool is the tool that a call named, Text its arguments, Seconds its time, negative while it goes on, and Error its error.
	Tool    string  `json:"tool,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Error   string  `json:"error,omitempty"`
	// Failed is whether the call came to nothing: the tool failed, or code that it ran did.
	Failed bool `json:"failed,omitempty"`
	// ProcessReward is the turn's reward by its tools, Reward its reward by the scorer.
	ProcessReward float64 `json:"process_reward,omitempty"`
	Reward        float64 `json:"reward,omitempty"`
	// Agent names the agent of the segment, where several agents take part.
	Agent string `json:"agent,omitempty"`
}

// RolloutForked is the part of a rollout that another rollout played before.
type RolloutForked struct {
	// Parent is that other's id, Turns counts the turns that are its own, Diverged is why they are fewer than were to be.
	Parent   string `json:"parent"`
	Turns    int    `json:"turns"`
	Diverged string `json:"diverged,omitempty"`
}

// RolloutRecorded is the trajectory of another run that answered a ticket, with the versions of that run which sampled it.
type RolloutRecorded struct {
	Run    string `json:"run"`
	ID     string `json:"id"`
	Oldest int64  `json:"oldest_version"`
	Newest int64  `json:"newest_version"`
}

// RolloutValue is the mean return of so many episodes that go on from a state, and the tokens that were sampled for them.
type RolloutValue struct {
	Mean    float64 `json:"mean"`
	Samples int     `json:"samples"`
	Tokens  int     `json:"tokens"`
}

// RolloutSegment is a segment with an entry a token in each array.
type RolloutSegment struct {
	Tokens      []int32   `json:"tokens"`
	ActionMask  []int     `json:"action_mask"`
	Logprobs    []float32 `json:"logprobs"`
	Versions    []int32   `json:"versions"`
	Temperature float32   `json:"temperature"`
}

// NewRollout reads a trajectory; decode turns token ids into text.
func NewRollout(t *schemas.Trajectory, decode func([]int32) string) *Rollout {
	r := &Rollout{
		ID: t.ID, Group: t.Group, Sample: t.Sample, Samples: t.GroupSize, Task: t.Task, PromptID: t.PromptID, Source: t.Source,
		Producer: t.Producer, Reward: t.Reward, Rewards: t.Rewards, AgentRewards: t.AgentRewards, Answer: t.Answer, Stop: t.Stop, Error: t.Error,
		OldestVersion: t.OldestVersion(), NewestVersion: t.NewestVersion(), Tokens: t.Tokens(), Sampled: t.ActionTokens(),
		StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
	}
	if f := t.Forked; f != nil {
		r.Forked = &RolloutForked{f.Parent, f.Turns, f.Diverged}
	}
	if o := t.Recorded; o != nil {
		r.Recorded = &RolloutRecorded{o.Run, o.ID, o.Oldest, o.Newest}
	}
	for _, v := range t.Values {
		r.Values = append(r.Values, RolloutValue(v))
	}
	for i := range t.Segments {
		s := &t.Segments[i]
		mask := make([]int, len(s.ActionMask))
		for k, on := range s.ActionMask {
			mask[k] = int(on)
		}
		r.Segments = append(r.Segments, RolloutSegment{s.Tokens, mask, s.Logprobs, s.Versions, s.Temperature})
		r.cutSegment(t, i, decode)
	}
	return r
}

// cutSegment cuts a segment where the speaker or the turn changes.
func (r *Rollout) cutSegment(t *schemas.Trajectory, segment int, decode func([]int32) string) {
	s := &t.Segments[segment]
	turnAt := func(token int) int {
		return slices.IndexFunc(t.Turns, func(u schemas.Turn) bool {
			return u.Segment == segment && token >= u.Start && token < u.End
		})
	}
	acts := func(token int) bool { return token < len(s.ActionMask) && s.ActionMask[token] != 0 }
	for start := 0; start < len(s.Tokens); {
		turn, end := turnAt(start), start+1
		for end < len(s.Tokens) && acts(end) == acts(start) && (!acts(start) || turnAt(end) == turn) {
			end++
		}
		part := RolloutPart{Role: RoleObservation, Segment: segment, Turn: -1, Text: decode(s.Tokens[start:end]), Agent: s.Agent}
		switch {
		case acts(start):
			part.Role, part.Turn = RolePolicy, turn
		case start == 0 && segment == 0:
			part.Role = RolePrompt
		case start == 0:
			part.Role = RoleContext
		}
		if part.Role == RolePolicy && turn >= 0 {
			part.ProcessReward, part.Reward = t.Turns[turn].ProcessReward, t.Turns[turn].Reward
		}
		r.Parts = append(r.Parts, part)
		if part.Role == RolePolicy && turn >= 0 && end >= t.Turns[turn].End {
			for _, call := range t.Turns[turn].Calls {
				r.Parts = append(r.Parts, RolloutPart{
					Role: RoleTool, Segment: segment, Turn: turn, Tool: call.Tool, Text: call.Arguments, Seconds: call.Duration.Seconds(),
					Error: call.Error, Failed: call.Failed,
				})
			}
		}
		start = end
	}
}

// Print writes the rollout as text: a line for each part, with its speaker. With colour the policy's own words stand out. Nothing
// of the rollout reaches the terminal that is not a graphic character.
func (r *Rollout) Print(w io.Writer, colour bool) error {
	var b strings.Builder
	r.writeHead(&b)
	r.writeParts(&b, colour)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeParts writes the parts with their speakers.
func (r *Rollout) writeParts(b *strings.Builder, colour bool) {
	for _, p := range r.Parts {
		p.writePart(b, colour)
	}
	r.writeAnswer(b)
}

// writeAnswer writes the answer, where the rollout has an answer.
func (r *Rollout) writeAnswer(b *strings.Builder) {
	if r.Stop == schemas.StopAnswer {
		writeSpoken(b, "answer", r.Answer, false)
	}
}

// PrintEnd writes the end of a rollout whose parts were printed: the answer, the reward, why it stopped.
func (r *Rollout) PrintEnd(w io.Writer) error {
	var b strings.Builder
	r.writeAnswer(&b)
	r.writeOutcome(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// Print writes the part, as [Rollout.Print] does.
func (p RolloutPart) Print(w io.Writer, colour bool) error {
	var b strings.Builder
	p.writePart(&b, colour)
	_, err := io.WriteString(w, b.String())
	return err
}

// writePart writes a part with its speaker.
func (p RolloutPart) writePart(b *strings.Builder, colour bool) {
	text := p.Text
	switch {
	case p.Role == RoleTool:
		text = fmt.Sprintf("%s(%q)", p.Tool, p.Text)
		if p.Seconds >= 0 {
			text += " " + time.Duration(p.Seconds*float64(time.Second)).Round(time.Microsecond).String()
		}
		if p.Error != "" {
			text += ": " + p.Error
		} else if p.Failed {
			text += ": failed"
		}
	default:
		if p.ProcessReward != 0 {
			text += fmt.Sprintf("   (process reward %.3g)", p.ProcessReward)
		}
		if p.Reward != 0 {
			text += fmt.Sprintf("   (turn reward %.3g)", p.Reward)
		}
	}
	who := p.Role
	if p.Role == RolePolicy {
		who = cmp.Or(Plain(p.Agent), who)
	}
	if p.Role == RolePolicy {
		text = countRepeats(text)
	}
	writeSpoken(b, who, text, colour && p.Role == RolePolicy)
}

// leastRepeats is how often a word stands in a row before its repetitions are counted and not printed.
const leastRepeats = 8

// countRepeats writes a word that stands many times in a row once, with the number of times.
func countRepeats(text string) string {
	var out []string
	for words := strings.Split(text, " "); len(words) > 0; {
		n := 1
		for n < len(words) && words[n] == words[0] {
			n++
		}
		if n >= leastRepeats && words[0] != "" {
			out = append(out, fmt.Sprintf("%s × %d", words[0], n))
		} else {
			out = append(out, words[:n]...)
		}
		words = words[n:]
	}
	return strings.Join(out, " ")
}

func (r *Rollout) writeHead(b *strings.Builder) {
	writeSpoken(b, "prompt id", cmp.Or(r.PromptID, "none")+sourceNote(r.Source)+fmt.Sprintf(", sample %d of %d", r.Sample, r.Samples), false)
	r.writeOutcome(b)
}

// writeOutcome writes the reward, why the rollout stopped, and how many tokens it has.
func (r *Rollout) writeOutcome(b *strings.Builder) {
	reward := []string{fmt.Sprintf("%.3f", r.Reward)}
	for _, name := range slices.Sorted(maps.Keys(r.Rewards)) {
		reward = append(reward, fmt.Sprintf("%s %.3g", name, r.Rewards[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.AgentRewards)) {
		reward = append(reward, fmt.Sprintf("agent %s %.3g", name, r.AgentRewards[name]))
	}
	writeSpoken(b, "reward", strings.Join(reward, "   "), false)
	stop := string(r.Stop)
	if r.Error != "" {
		stop += ": " + r.Error
	}
	writeSpoken(b, "stopped by", stop, false)
	if r.Tokens == 0 {
		return // a model that gives no token ids
	}
	if o := r.Recorded; o != nil {
		by := versionSpan(o.Oldest, o.Newest)
		writeSpoken(b, "tokens", fmt.Sprintf("%d tokens, %d sampled by %s of run %s", r.Tokens, r.Sampled, by, o.Run), false)
		writeSpoken(b, "recorded", fmt.Sprintf("as trajectory %s; answered a ticket of version %d", o.ID, r.OldestVersion), false)
		return
	}
	by := versionSpan(r.OldestVersion, r.NewestVersion)
	writeSpoken(b, "tokens", fmt.Sprintf("%d tokens, %d sampled by %s", r.Tokens, r.Sampled, by), false)
	if f := r.Forked; f != nil {
		from := fmt.Sprintf("its first %d turns are those of %s", f.Turns, f.Parent)
		if f.Diverged != "" {
			from += "; " + f.Diverged
		}
		writeSpoken(b, "forked", from, false)
	}
}

// versionSpan names the versions that sampled a rollout.
func versionSpan(oldest, newest int64) string {
	if newest == oldest {
		return fmt.Sprintf("version %d", oldest)
	}
	return fmt.Sprintf("version %d to %d", oldest, newest)
}

func sourceNote(source string) string {
	if source == "" {
		return ""
	}
	return ", source " + source
}

// roleWidth is the width of the column of speakers.
const roleWidth = 13

// writeSpoken writes text beside its speaker, further lines below it.
func writeSpoken(b *strings.Builder, who, text string, bright bool) {
	for i, line := range plainLines(text) {
		if i > 0 {
			who = ""
		}
		if bright {
			line = policyColour + line + plainColour
		}
		fmt.Fprintf(b, "  %-*s%s\n", roleWidth, who, line)
	}
}

// How the policy's own words look on a terminal.
const (
	policyColour = "\x1b[36m"
	plainColour  = "\x1b[0m"
)
