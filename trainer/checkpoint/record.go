package checkpoint

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// Record has the batch of a step and the end of everything else around it: the messages and groups that ended after the checkpoint before
// and until this checkpoint was written, or written anew.
type Record struct {
	// Step 0 is the start: it trains on nothing.
	Step int64 `json:"step"`
	// Stream and Created name the stream that sequences are of.
	Stream  string    `json:"stream"`
	Created time.Time `json:"created"`
	// Losses counts how often the stream had lost messages by then: after a loss a sequence may name another message.
	Losses int64         `json:"losses,omitempty"`
	Groups []RecordGroup `json:"groups,omitempty"`
	// Use counts the steps that have trained on Groups, this one among them; 0 where it is the first. Their sequences are those of the first
	// step's stream.
	Use int `json:"use,omitempty"`
	// Settings is a hash of the State's settings, with which the step was trained; Changed are the changes since the step before.
	Settings string         `json:"settings,omitempty"`
	Changed  []RecordChange `json:"changed,omitempty"`
	// Batch is set when the batch itself is kept: ReadBatch.
	Batch *KeptBatch `json:"batch,omitempty"`
	// Began is the version that the step began with, as it was published; nil where that is not known.
	Began *Published `json:"began,omitempty"`
	// Result is what the step made of its batch; nil in lines of a build that did not note it.
	Result *Result `json:"result,omitempty"`
	// Drift is set where the step's tensors were learnt again on an engine that does not repeat to the bit.
	Drift *Drift `json:"drift,omitempty"`
	// Rejected are the trajectories that ended otherwise.
	Rejected []RecordRejection `json:"rejected,omitempty"`
	// Dropped are the groups that were not trained on.
	Dropped []RecordDrop `json:"dropped,omitempty"`
	// NextCursor is the first prompt never issued; Open the groups issued and not ended; Again the prompts
	// that wait to be issued again.
	NextCursor uint64   `json:"next_cursor"`
	Open       []string `json:"open,omitempty"`
	Again      []Again  `json:"again,omitempty"`
	// OpenSources are the places in Open of the groups of each source; a group without a source has a prompt without a source, or the line
	// is of a build that did not note sources.
	OpenSources map[string][]int `json:"open_sources,omitempty"`
	// Forked is set in the line of the step that a fork goes on from; the lines before it are the parent's.
	Forked *RecordFork `json:"forked,omitempty"`
	// Chain is the SHA-256, in hex, of the chain of the line before and this line without its own chain: a line cannot be changed, taken
	// out or put in unnoticed. "" in lines of a build without chains. It is the line's last field.
	Chain string `json:"chain,omitempty"`
}

// RecordFork names the run that a run was forked from.
type RecordFork struct {
	// Parent is the run's name, Chain that of the step's line in its record.
	Parent string `json:"parent"`
	Chain  string `json:"chain"`
	// Begins is set where the line, as it was read, is the first that its record ever had: a shadow's record begins at a step of its run. It
	// is not written.
	Begins bool `json:"-"`
}

// Result is the outcome of a step, with which the same step is compared when it is learnt again.
type Result struct {
	// Files are the SHA-256, in hex, of the files of tensors in the step's checkpoint, by name within it: weights and moments of the policy
	// and of a critic that is a network of its own. A light checkpoint has none.
	Files map[string]string `json:"files,omitempty"`
	// Numbers are the learner's metrics of the step, by key; those that are not finite are left out. Step 0 has none.
	Numbers map[string]float64 `json:"numbers,omitempty"`
}

// Published names the files of a version as it was published: the weights of a step whose checkpoint is light are compared with them.
type Published struct {
	// DType and ShardBytes are the form in which the engine wrote them; Adapter is set where they are adapters.
	DType      string `json:"dtype"`
	ShardBytes int64  `json:"shard_bytes,omitempty"`
	Adapter    bool   `json:"adapter,omitempty"`
	// Files are the SHA-256 of the files, in hex, by name.
	Files map[string]string `json:"files"`
}

// Drift is how far steps that were learnt again after a stop came out from the version that had been published, whose weights the run went
// on with.
type Drift struct {
	// From is the step of the full checkpoint that they were learnt from.
	From int64 `json:"from"`
	// Share is the distance from the published version as a share of the distance between From and that version; Changed is the share of the
	// numbers that differed in the type of the published version.
	Share   float64 `json:"share"`
	Changed float64 `json:"changed"`
}

// FiniteNumbers are the metrics that a Result has: JSON has no NaN or infinity.
func FiniteNumbers(metrics map[string]float64) map[string]float64 {
	out := maps.Clone(metrics)
	maps.DeleteFunc(out, func(_ string, x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	return out
}

// RecordChange is a setting that changed between two steps.
type RecordChange struct {
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// String is the change in words.
func (c RecordChange) String() string {
	return c.Key + ": " + c.After + ", before " + c.Before
}

// Continue makes a record go on from the record of the same step that was written before: it takes that record's stream and parent, and its
// own rejections that name no stream get the stream that the record had.
func (r *Record) Continue(before Record) {
	r.Forked = before.Forked
	if r.Created.Equal(before.Created) && r.Losses == before.Losses {
		return
	}
	created, losses := r.Created, r.Losses
	for i, m := range r.Rejected {
		if m.Created == nil {
			r.Rejected[i].Created, r.Rejected[i].Losses = &created, &losses
		}
	}
	r.Stream, r.Created, r.Losses = before.Stream, before.Created, before.Losses
}

// AddOpen notes a group that was issued and has not ended, and its prompt's source.
func (r *Record) AddOpen(id, source string) {
	if source != "" {
		if r.OpenSources == nil {
			r.OpenSources = map[string][]int{}
		}
		r.OpenSources[source] = append(r.OpenSources[source], len(r.Open))
	}
	r.Open = append(r.Open, id)
}

// OpenSource are the sources of the groups in Open, in their order; "" where it is not known.
func (r *Record) OpenSource() []string {
	out := make([]string, len(r.Open))
	for source, places := range r.OpenSources {
		for _, i := range places {
			if i >= 0 && i < len(out) {
				out[i] = source
			}
		}
	}
	return out
}

// RecordGroup is a group that the step trained on.
type RecordGroup struct {
	Group string `json:"group"`
	// Size is the number of the group's tickets; 0 in lines of a build that did not note it.
	Size int `json:"size,omitempty"`
	// Source is the prompt's data set, or kind of question; "" where it has none, and in lines of a build that did not note sources.
	Source string `json:"source,omitempty"`
	// Task and Prompt are the task and the id of the group's prompt; "" in lines of a build that did not note them.
	Task    string         `json:"task,omitempty"`
	Prompt  string         `json:"prompt,omitempty"`
	Members []RecordMember `json:"members"`
	// Baseline is the greedy rollout that the members were compared with; nil where the advantage needs none.
	Baseline *RecordMember `json:"baseline,omitempty"`
}

// Used are the members, then the baseline: every trajectory that the step used up.
func (g *RecordGroup) Used() []RecordMember {
	if g.Baseline == nil {
		return g.Members
	}
	return append(slices.Clip(g.Members), *g.Baseline)
}

// RecordMember is a trajectory that the step used up: trained on, used as a baseline, or passed over.
type RecordMember struct {
	ID       string `json:"id"`
	Sequence uint64 `json:"seq"`
	// Oldest and Newest are the versions of its oldest and newest sampled tokens.
	Oldest int64   `json:"oldest"`
	Newest int64   `json:"newest"`
	Reward float64 `json:"reward"`
	// Advantage is the mean over its action tokens with which the step trained on it; nil where the step did not train on it, or a build
	// did not note it.
	Advantage *float32 `json:"advantage,omitempty"`
	// PassedOver is set where the selection took other samples of the group to train on.
	PassedOver bool `json:"passed_over,omitempty"`
}

// RecordRejection is a trajectory that was not trained on.
type RecordRejection struct {
	ID string `json:"id"`
	// Sequence is 0 for a sample that was lost: it never came.
	Sequence uint64         `json:"seq"`
	Reason   schemas.Reason `json:"reason"`
	// Created and Losses name the stream of Sequence where that differs from the record's: the stream was made anew, and then the step's
	// checkpoint was, or the checkpoint before had carried the trajectory. Nil where it is the record's stream.
	Created *time.Time `json:"created,omitempty"`
	Losses  *int64     `json:"losses,omitempty"`
}

// RecordDrop is a group that was not trained on.
type RecordDrop struct {
	Group   string         `json:"group"`
	Cursor  uint64         `json:"cursor"`
	Reason  schemas.Reason `json:"reason"`
	Reissue bool           `json:"reissue"`
	// Size is the number of the group's tickets; 0 in lines of a build that did not note sizes. Source, Task and Prompt are as in
	// RecordGroup.
	Size   int    `json:"size,omitempty"`
	Source string `json:"source,omitempty"`
	Task   string `json:"task,omitempty"`
	Prompt string `json:"prompt,omitempty"`
}
