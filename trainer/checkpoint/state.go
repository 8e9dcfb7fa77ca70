package checkpoint

import (
	"encoding/json"
	"time"

	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/admission"
	"github.com/weir-rl/weir/trainer/batch"
)

// Format is the only layout that this build writes and reads.
const Format = 1

// Checkpoint is the whole state that a trainer goes on from.
type Checkpoint struct {
	State  State
	Record Record
	// Policy and Critic are the networks that Save writes; Critic is nil unless the critic is a network of its own. Read does not fill
	// them.
	Policy, Critic Network
	// Dir is the folder of the policy and its optimizer, and CriticDir the critic's, "" where there is none. Read fills
	// them.
	Dir, CriticDir string
	// Tokenizer is tokenizer.json, for Save; nil when the model has none.
	Tokenizer []byte
	// Files are the files of the policy's model folder, which Save puts unchanged beside the policy's weights; nil for a policy without a
	// folder.
	Files *hf.Files
	// Full is the full checkpoint from which the tensors of a light checkpoint are learnt again, and Since the records of the steps after
	// it, the checkpoint's own last. Load fills them for a light checkpoint; they are nil for a full one.
	Full  *Checkpoint
	Since []*Record
	// PassedOver lists the damage of newer full checkpoints than Full.
	PassedOver []*Damage
	// Pending are the carried messages of the ledger: they are delivered first, and not by the stream.
	Pending []schemas.Delivery
	// Batch has the trajectories that the step trained on, to be kept beside the checkpoint. Read does not fill it.
	Batch []schemas.Delivery
}

// State is the part that is neither weights nor moments.
type State struct {
	Format int    `json:"format"`
	Run    string `json:"run"`
	// Step counts the steps done; the policy version equals it: version 0 is the starting weights.
	Step int64 `json:"step"`
	// Light is set for a checkpoint without tensors: they are a function of an earlier full checkpoint and of the batches since. Its counts
	// of optimizer steps are 0.
	Light bool `json:"light,omitempty"`
	// OptimizerSteps is the optimizer's own count.
	OptimizerSteps int64 `json:"optimizer_steps"`
	// CriticOptimizerSteps is the count of the critic's own optimizer, if any.
	CriticOptimizerSteps int64 `json:"critic_optimizer_steps,omitempty"`
	// Random is the state of the generator that shuffles minibatches.
	Random []byte `json:"random,omitempty"`
	// Eta and Depth are in force; ConfiguredEta and ConfiguredDepth are the configured values at that time, so that a change by an operator
	// outlives a restart and a change of the configuration is noticed.
	Eta             int `json:"eta"`
	Depth           int `json:"depth"`
	ConfiguredEta   int `json:"configured_eta"`
	ConfiguredDepth int `json:"configured_depth"`
	// Limits are the operators' limits of episodes; none where the configured limits hold.
	Limits    []schemas.Limit `json:"limits,omitempty"`
	Admission admission.State `json:"admission"`
	Issue     Issue           `json:"issue"`
	// Stream and Created name the stream of Ledger.
	Stream  string       `json:"stream"`
	Created time.Time    `json:"created"`
	Ledger  batch.Ledger `json:"ledger"`
	// Records is where the record of all steps stood before this step's line; nil where an earlier build wrote it.
	Records *Tail `json:"records,omitempty"`
	// Replaces is the chain of the step's line that this checkpoint's line takes the place of, where it was written anew: a kill may leave
	// the old line in the record until the next start. "" where the checkpoint was written once.
	Replaces string `json:"replaces,omitempty"`
	// Known is the last message that the stream is known to have held, and Stored when it was stored: a stream without it has lost
	// messages. 0 and the zero time where that was not noted. Losses counts how often the stream of this name and creation time has lost
	// messages.
	Known  uint64    `json:"known,omitempty"`
	Stored time.Time `json:"stored,omitzero"`
	Losses int64     `json:"losses,omitempty"`
	// FlatGroups counts the groups dropped for lack of variance since the last batch was taken.
	FlatGroups int `json:"flat_groups"`
	// KLCoef is the coefficient of the KL term in force, which may adapt; nil when not known. ConfiguredKLCoef is the configured value at
	// that time.
	KLCoef           *float64 `json:"kl_coef,omitempty"`
	ConfiguredKLCoef *float64 `json:"configured_kl_coef,omitempty"`
	// Advantage is the estimator's state from the batches so far; nil for an estimator without state.
	Advantage *AdvantageState `json:"advantage,omitempty"`
	Totals    Totals          `json:"totals"`
	// Metrics are the step's metrics when the checkpoint is written, for a trainer that is killed before it has reported the step.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Settings are the settings that the step was trained with, by key; none where Deps.Settings was nil.
	Settings map[string]string `json:"settings,omitempty"`
	SavedAt  time.Time         `json:"saved_at"`
}

// AdvantageState is the state of an estimator that learns from batch to batch.
type AdvantageState struct {
	// Name is the estimator's name: another estimator cannot use the state.
	Name  string          `json:"name"`
	State json.RawMessage `json:"state"`
}

// Issue is where the issue of tickets stands.
type Issue struct {
	// NextCursor is the first prompt never issued, NextIndex the number of groups issued.
	NextCursor uint64 `json:"next_cursor"`
	NextIndex  uint64 `json:"next_index"`
	// Open groups are issued and neither trained on nor dropped, in the order of issue.
	Open []OpenGroup `json:"open,omitempty"`
	// Refused are the samples of open groups whose messages were refused.
	Refused []batch.Refused `json:"refused,omitempty"`
	// Again lists prompts whose group was dropped and that wait to be issued again.
	Again []Again `json:"again,omitempty"`
	// Extra counts the groups issued beyond the step's share since the last batch.
	Extra int `json:"extra,omitempty"`
}

// OpenGroup is an issued group.
type OpenGroup struct {
	Index uint64 `json:"index"`
	// Ticket is the group's first; the others differ in sample, id and seed, which follow from it.
	Ticket schemas.Ticket `json:"ticket"`
	// Baseline is set if the last ticket asks for a greedy rollout.
	Baseline bool `json:"baseline,omitempty"`
	// Trunks is how many samples were issued first, 0 for all. Whether the others are issued too is not kept: it follows from the trunks'
	// trajectories, which are read again.
	Trunks int `json:"trunks,omitempty"`
}

// Group is the group in the assembler's form.
func (g OpenGroup) Group() batch.Group {
	return batch.Group{
		Index: g.Index, Cursor: g.Ticket.Cursor, Attempt: g.Ticket.Attempt, Size: g.Ticket.GroupSize, HasBaseline: g.Baseline,
		Ticket: &g.Ticket, MinVersion: g.Ticket.MinVersion, Trunks: g.Trunks,
	}
}

// Again is a prompt to be issued again.
type Again struct {
	Cursor uint64 `json:"cursor"`
	// Attempt is the attempt of the dropped group.
	Attempt int `json:"attempt"`
}

// Totals count since the run began.
type Totals struct {
	Trajectories   int64 `json:"trajectories"`
	Tokens         int64 `json:"tokens"`
	ActionTokens   int64 `json:"action_tokens"`
	Rejected       int64 `json:"rejected"`
	OptimizerSteps int64 `json:"optimizer_steps"`
	// Wall is the time spent in steps, waiting included; Idle the part spent waiting for a batch.
	Wall time.Duration `json:"wall_ns"`
	Idle time.Duration `json:"idle_ns"`
}
