package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Trace lists which steps used rollouts of a prompt, and with which weights.
type Trace struct {
	// Groups are the groups of the prompt, in order of their steps.
	Groups []TracedGroup
	// Weights names the weights of policy versions: see [checkpoint.Published.ShortName]. Versions of which the record does not have the
	// published files are left out, the newest among them.
	Weights map[int64]string
	// Unknown are steps whose prompts are not known: their lines of the record are of a build that did not note prompts, and neither the
	// archive nor a kept batch has their trajectories.
	Unknown []int64
}

// TracedGroup is a group of rollouts of a prompt.
type TracedGroup struct {
	Group, Task, Prompt, Source string
	// Step trained on the group, or is the step whose record notes that the group was dropped.
	Step int64
	// Reason says why the group was dropped; "" for a group that was trained on.
	Reason schemas.Reason
	// Members are the trajectories that the step used up; none of a dropped group.
	Members []TracedMember
}

// TracedMember is a trajectory of a group.
type TracedMember struct {
	Verdict
	// Advantage is the mean over its action tokens; nil where the step did not train on it, or the record does not have it.
	Advantage *float32
}

// tracer is a search for a prompt.
type tracer struct {
	folder  *Folder
	prompt  string
	damaged func(error)
	Trace
	// unnoted are the steps whose lines have groups without prompts, and found the groups of the prompt among those, by id.
	unnoted []int64
	found   map[string]bool
}

// maxTracedBytes bounds the kept batches that Trace reads where the record has no prompts, compressed.
const maxTracedBytes = 256 << 20

// Trace finds the groups of a prompt in the record of steps. Lines without the prompt's id are not decoded. In lines of a build that did
// not note prompts it finds them by the archive and by the kept batches, of which it reads at most 256 MiB, the newest first. damaged is
// called with each line that was changed.
func (f *Folder) Trace(prompt string, damaged func(error)) (*Trace, error) {
	t := &tracer{folder: f, prompt: prompt, damaged: damaged, Trace: Trace{Weights: map[int64]string{}}, found: map[string]bool{}}
	for _, find := range []func() error{t.findNoted, t.findUnnoted, t.nameWeights} {
		if err := find(); err != nil {
			return nil, fmt.Errorf("trace a prompt: %w", err)
		}
	}
	slices.SortStableFunc(t.Groups, func(a, b TracedGroup) int { return int(a.Step - b.Step) })
	return &t.Trace, nil
}

// eachLine calls use with each line of the record, also with lines that were changed.
func (t *tracer) eachLine(use func(*checkpoint.Line) error) error {
	for line, err := range checkpoint.Lines(t.folder.Checkpoints) {
		if damage := (*checkpoint.Damage)(nil); errors.As(err, &damage) {
			t.damaged(err)
		} else if err != nil {
			return err
		}
		if err := use(line); err != nil {
			return err
		}
	}
	return nil
}

// findNoted finds the groups in lines that have the prompt's id.
func (t *tracer) findNoted() error {
	id, err := encodeField("prompt", t.prompt)
	if err != nil {
		return err
	}
	return t.eachLine(func(line *checkpoint.Line) error {
		switch {
		case line.Contains(id):
			return t.addLine(line, func(_, prompt string) bool { return prompt == t.prompt })
		case line.Contains([]byte(`"groups":[`)) && !line.Contains([]byte(`"prompt":"`)):
			t.unnoted = append(t.unnoted, line.Step)
		}
		return nil
	})
}

// encodeField encodes a field as it stands in the record.
func encodeField(name, value string) ([]byte, error) {
	data, err := json.Marshal(map[string]string{name: value})
	return bytes.Trim(data, "{}"), err
}

// addLine adds the groups of a line that are wanted, by their id and their prompt's.
func (t *tracer) addLine(line *checkpoint.Line, wanted func(group, prompt string) bool) error {
	rec := &checkpoint.Record{}
	if err := line.Decode(rec); err != nil {
		return err
	}
	for i := range rec.Groups {
		if g := &rec.Groups[i]; wanted(g.Group, g.Prompt) {
			t.Groups = append(t.Groups, t.traceGroup(rec, i))
		}
	}
	for _, d := range rec.Dropped {
		if wanted(d.Group, d.Prompt) {
			t.Groups = append(t.Groups, TracedGroup{
				Group: d.Group, Task: d.Task, Prompt: t.prompt, Source: d.Source, Step: rec.Step, Reason: d.Reason,
			})
		}
	}
	return nil
}

// traceGroup is a group that a step trained on, by its number in the step's record.
func (t *tracer) traceGroup(rec *checkpoint.Record, i int) TracedGroup {
	group := &rec.Groups[i]
	out := TracedGroup{Group: group.Group, Task: group.Task, Prompt: t.prompt, Source: group.Source, Step: rec.Step}
	used := group.Used()
	for v := range Verdicts(&checkpoint.Record{Step: rec.Step, Groups: rec.Groups[i : i+1]}) {
		out.Members = append(out.Members, TracedMember{v, used[len(out.Members)].Advantage})
	}
	return out
}

// findUnnoted finds the groups in lines that have no prompts.
func (t *tracer) findUnnoted() error {
	if len(t.unnoted) == 0 {
		return nil
	}
	left, err := t.searchArchive()
	if err != nil {
		return err
	}
	if err := t.searchBatches(left); err != nil {
		return err
	}
	if len(t.found) == 0 {
		return nil
	}
	return t.eachLine(func(line *checkpoint.Line) error {
		if _, without := slices.BinarySearch(t.unnoted, line.Step); !without {
			return nil
		}
		return t.addLine(line, func(group, prompt string) bool { return prompt == "" && t.found[group] })
	})
}

// searchArchive finds groups of the prompt in the archive, and returns the steps of which it has nothing.
func (t *tracer) searchArchive() (left []int64, err error) {
	if err := t.folder.Archive.refreshEntries(); err != nil {
		return nil, err
	}
	known := map[int64]bool{}
	t.folder.Archive.eachEntry(func(e *archive.Entry) {
		if e.Fate == archive.FateRejected {
			return
		}
		known[e.Step] = true
		if e.Prompt == archive.ClipPrompt(t.prompt) {
			t.found[GroupOfTicket(e.ID)] = true
		}
	})
	for _, step := range t.unnoted {
		if !known[step] {
			left = append(left, step)
		}
	}
	return left, nil
}

// searchBatches finds groups of the prompt in the kept batches of steps, the newest first.
func (t *tracer) searchBatches(steps []int64) error {
	room := int64(maxTracedBytes)
	for _, step := range slices.Backward(steps) {
		info, err := os.Stat(checkpoint.BatchPath(t.folder.Checkpoints, step))
		if err != nil || info.Size() > room {
			t.Unknown = append(t.Unknown, step)
			continue
		}
		room -= info.Size()
		deliveries, err := checkpoint.ReadKept(t.folder.Checkpoints, step)
		if err != nil {
			return err
		}
		for _, d := range deliveries {
			if d.Trajectory != nil && d.Trajectory.PromptID == t.prompt {
				t.found[d.Trajectory.Group] = true
			}
		}
	}
	slices.Reverse(t.Unknown)
	return nil
}

// nameWeights names the weights that the groups were sampled from, trained from and made.
func (t *tracer) nameWeights() error {
	wanted := map[int64]bool{}
	for _, g := range t.Groups {
		if g.Reason == "" {
			wanted[g.Step-1], wanted[g.Step] = true, true
		}
		for _, m := range g.Members {
			for v := m.Oldest; v <= m.Newest; v++ {
				wanted[v] = true
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return t.eachLine(func(line *checkpoint.Line) error {
		if !wanted[line.Step-1] {
			return nil
		}
		var rec struct {
			Began *checkpoint.Published `json:"began"`
		}
		if err := line.Decode(&rec); err != nil {
			return err
		}
		if name := rec.Began.ShortName(); name != "" {
			t.Weights[line.Step-1] = name
		}
		return nil
	})
}
