package trainer

import (
	"math"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/admission"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/branch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/selection"
)

// Config is everything that can be chosen about training.
type Config struct {
	// Config is how the policy learns from a batch: its fields are read as Config's own.
	learner.Config `koanf:",squash"`

	// GroupSize is how many trajectories are sampled of a prompt. An advantage that needs a baseline (remax) has one
	// more rolled out, greedily, which is not trained on. Defaults to 8.
	GroupSize int `koanf:"group_size"`
	// MinGroup is how many usable trajectories a group needs when some were cancelled or went stale, a baseline not
	// counted; a group with fewer is dropped and its prompt issued again. GroupSize here means all or nothing. Defaults
	// to 2.
	MinGroup int `koanf:"min_group"`
	// MaxDroppedGroups bounds the groups that the selection drops in one step: after that the step goes on with the
	// groups it has, one at least. 0 is no bound. Defaults to 128.
	MaxDroppedGroups int `koanf:"max_dropped_groups"`
	// StopWhenStuck ends the run with an error when MaxDroppedGroups, or 128 where that has no bound, were dropped for a
	// step and not one group was kept. Otherwise the run says so, and why, and waits for a question that teaches something.
	// Defaults to false.
	StopWhenStuck bool `koanf:"stop_when_stuck"`
	// MaxAttempts bounds how often a prompt is issued; after that another takes its place. 0 is no bound.
	// Defaults to 10.
	MaxAttempts int `koanf:"max_attempts"`

	// Branch has some samples of a group begin with turns of others.
	Branch branch.Config `koanf:"branch"`

	// GroupTimeout bounds how long the trainer waits while nothing comes at all and every ticket that is left is leased: then
	// the samples that are awaited are given up, and groups that lack too many issued again. It counts as three times
	// limits.timeout at the least. 0, no limits.timeout, or deterministic turns it off; what nothing is left to come from is
	// given up at once all the same. Defaults to 15m.
	GroupTimeout time.Duration `koanf:"group_timeout"`

	// Eta bounds staleness: the oldest token of a trajectory may be this many versions behind the trainer. 0 is
	// synchronous training. It can be changed while the run goes on. Defaults to 4.
	Eta int `koanf:"eta"`
	// Depth is how many versions ahead work is issued, at most Eta; -1 follows Eta. It can be changed while the
	// run goes on. Defaults to -1.
	Depth int `koanf:"depth"`
	// Hold is how many further batches must be ready before a step begins, at most Depth: the step then trains on
	// trajectories that are Hold versions old whatever the speeds. It is for studies of staleness. Defaults to 0.
	Hold int `koanf:"hold"`
	// MaxConcurrentGroups bounds the groups in flight. 0 leaves Depth alone to bound them. Defaults to 0.
	MaxConcurrentGroups int `koanf:"max_concurrent_groups"`
	// Deterministic judges groups in the order of issue, so that with Eta 0 a run gives the same weights
	// bit for bit whatever the timing. It costs waiting when Eta is above 0. Defaults to false.
	Deterministic bool `koanf:"deterministic"`

	Sampling   Sampling          `koanf:"sampling"`
	Limits     Limits            `koanf:"limits"`
	Checkpoint checkpoint.Config `koanf:"checkpoint"`
	Archive    archive.Config    `koanf:"archive"`
	Publish    Publish           `koanf:"publish"`
}

// Sampling says how rollouts draw tokens.
type Sampling struct {
	// Temperature must be positive. A baseline is drawn greedily whatever it is. Defaults to 1.
	Temperature float32 `koanf:"temperature"`
	// MaxTokens bounds one generate call; 0 leaves limits.max_tokens alone to bound it. Defaults to 0.
	MaxTokens int `koanf:"max_tokens"`
}

// Limits bound one rollout.
type Limits struct {
	// MaxTurns bounds the tool calls. Defaults to 4.
	MaxTurns int `koanf:"max_turns"`
	// MaxTokens bounds the tokens of a segment, prompt and tools included. Defaults to 96.
	MaxTokens int `koanf:"max_tokens"`
	// Timeout bounds the wall-clock of a rollout; 0 is no bound. Defaults to 2m.
	Timeout time.Duration `koanf:"timeout"`
	// MaxTotalTokens bounds the tokens of all segments of a rollout together, each segment counted whole; 0 is no bound. The
	// rollout ends where it has no room left. Defaults to 0.
	MaxTotalTokens int `koanf:"max_total_tokens"`
	// MaxSegments bounds the contexts of a rollout: a trajectory with more is refused. An agent that keeps to one context
	// has one segment. 0 is no bound. Defaults to 64.
	MaxSegments int `koanf:"max_segments"`
	// MaxReward bounds a reward by magnitude: its components, process rewards and all of them together. A trajectory beyond
	// it is refused, for one would be the whole step. 0 is no bound. Defaults to 1e6.
	MaxReward float64 `koanf:"max_reward"`
}

// Publish says how versions go out.
type Publish struct {
	// DType is float32 or bfloat16. Defaults to float32.
	DType string `koanf:"dtype"`
	// ShardBytes bounds a shard; a larger tensor has one to itself. Readers take shards side by side. Defaults to
	// 16 MiB.
	ShardBytes int64 `koanf:"shard_bytes"`
	// Adapter publishes low-rank adapters alone where the engine trains such beside frozen weights (model.lora), a few hundredths
	// of the bytes: readers have the frozen weights once and merge each version, with the bits of a merged export. False
	// publishes the merged weights. Other engines do not read it. Defaults to true.
	Adapter bool `koanf:"adapter"`
}

// DefaultConfig are the settings of the demonstration.
func DefaultConfig() Config {
	return Config{
		Config:    learner.DefaultConfig(),
		GroupSize: 8, MinGroup: 2, MaxDroppedGroups: 128, MaxAttempts: 10, GroupTimeout: 15 * time.Minute,
		Branch: branch.Default(), Eta: 4, Depth: admission.FollowEta,
		Sampling:   Sampling{Temperature: 1},
		Limits:     Limits{MaxTurns: 4, MaxTokens: 96, Timeout: 2 * time.Minute, MaxSegments: 64, MaxReward: 1e6},
		Checkpoint: checkpoint.DefaultConfig(), Archive: archive.DefaultConfig(),
		Publish: Publish{DType: "float32", ShardBytes: 16 << 20, Adapter: true},
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	facts, r := c.Advantage.Facts(), c.Selection.Resample
	least, learns := max(1, facts.LeastGroup), max(1, facts.LearnsFrom)
	if c.Loss.Facts().NoAdvantages {
		learns = 1
	}
	takes := least // samples that are compared with all of their group may be few
	if r.By == selection.ResampleCorrect {
		takes = max(least, learns)
	}
	depth := c.Depth >= admission.FollowEta && c.Depth <= c.Eta // else there is no depth to compare with
	pace := c.limits(c.Eta, c.Depth).Pace()
	return check.All(
		c.Config.Validate(),
		check.Positive("group_size", c.GroupSize),
		check.Positive("min_group", c.MinGroup),
		check.That(c.MinGroup <= c.GroupSize, "min_group", "%d: must not exceed group_size (%d)", c.MinGroup, c.GroupSize),
		check.That(least == 1 || c.MinGroup >= least, "min_group", "%d: advantage %s compares at least %d", c.MinGroup, c.Advantage.Name, least),
		check.That(c.GroupSize < 1 || c.GroupSize >= learns, "group_size",
			"%d: advantage %s is 0 for groups of fewer than %d: nothing would be learnt", c.GroupSize, c.Advantage.Name, learns),
		check.That(r.By == selection.ResampleOff || r.Take < 1 || r.Take >= takes && r.Take <= c.GroupSize, "selection.resample.take",
			"%d: must be between %d, what advantage %s compares, and group_size (%d)", r.Take, takes, c.Advantage.Name, c.GroupSize),
		check.That(c.GroupSize != 1 || !c.Selection.DropsSingles(), "selection.keep_single",
			"false: with group_size 1 every group would be dropped: leave it on, or set selection.drop_zero_variance to false"),
		check.That(c.Selection.Accumulate.Rows <= c.mostRows(), "selection.accumulate.rows",
			"%d: batch_groups (%d), selection.accumulate.max_rounds (%d), group_size (%d) and limits.max_segments (%d) allow a step %d rows: lower it, or raise max_rounds",
			c.Selection.Accumulate.Rows, c.BatchGroups, c.Selection.Accumulate.MaxRounds, c.GroupSize, c.Limits.MaxSegments, c.mostRows()),
		check.Section("branch", c.Branch.Validate()),
		check.That(c.Branch.Trunks <= 0 || c.Branch.Trunks < c.GroupSize, "branch.trunks",
			"%d: must be below group_size (%d), or 0: the other samples are forks", c.Branch.Trunks, c.GroupSize),
		check.NotNegative("max_dropped_groups", c.MaxDroppedGroups),
		check.NotNegative("max_attempts", c.MaxAttempts),
		check.NotNegative("group_timeout", c.GroupTimeout),
		check.NotNegative("eta", c.Eta),
		check.That(depth, "depth", "%d: must be -1, or between 0 and eta (%d)", c.Depth, c.Eta),
		check.That(c.Eta < 0 || !depth || c.Hold >= 0 && c.Hold <= pace, "hold", "%d: must be between 0 and the depth (%d)", c.Hold, pace),
		check.That(c.Hold == 0 || c.Selection.Accumulate.Rows == 0, "hold",
			"%d: counts batches of groups: set selection.accumulate.rows to 0", c.Hold),
		check.NotNegative("max_concurrent_groups", c.MaxConcurrentGroups),
		check.That(c.Sampling.Temperature > 0 && !math.IsInf(float64(c.Sampling.Temperature), 0), "sampling.temperature",
			"%v: must be positive: what is drawn greedily cannot be trained on", c.Sampling.Temperature),
		check.NotNegative("sampling.max_tokens", c.Sampling.MaxTokens),
		check.NotNegative("limits.max_turns", c.Limits.MaxTurns),
		check.Positive("limits.max_tokens", c.Limits.MaxTokens),
		check.NotNegative("limits.max_total_tokens", c.Limits.MaxTotalTokens),
		check.NotNegative("limits.max_segments", c.Limits.MaxSegments),
		check.NotNegative("limits.max_reward", c.Limits.MaxReward),
		check.NotNegative("limits.timeout", c.Limits.Timeout),
		check.Section("checkpoint", c.Checkpoint.Validate()),
		check.Section("archive", c.Archive.Validate()),
		check.OneOf("publish.dtype", c.Publish.DType, "float32", "bfloat16"),
		check.Positive("publish.shard_bytes", c.Publish.ShardBytes),
	)
}

// Unread says why nothing in a run under this configuration depends on a key of the section; "" if something does.
func (c Config) Unread(key string) string {
	section, name, _ := strings.Cut(key, ".")
	why := ""
	switch {
	case section == "branch":
		why = c.Branch.Unread(name)
	case section == "archive":
		why = c.Archive.Unread(name)
	case key == "group_timeout" && c.Deterministic:
		return "deterministic waits as long as it takes"
	default:
		return c.Config.Unread(key)
	}
	if why != "" {
		why = section + "." + why
	}
	return why
}

// hold at a step: the last batches of a run have no others behind them.
func (c Config) hold(step int64) int { return int(max(0, min(int64(c.Hold), c.Steps-step-1))) }

// limits are the admission controller's.
func (c Config) limits(eta, depth int) admission.Limits {
	l := admission.Limits{Batch: c.BatchGroups, Eta: eta, Depth: depth}
	l.Concurrency = c.MaxConcurrentGroups
	if l.Concurrency == 0 {
		l.Concurrency = (l.Pace() + 1) * c.BatchGroups
	}
	return l
}

// groupTickets is how many rollouts a group asks for.
func (c Config) groupTickets() int {
	if c.Baseline() {
		return c.GroupSize + 1
	}
	return c.GroupSize
}

// maxPending is how many messages may be delivered and not acked: all that can be of use at once, with room for
// markers and what is refused.
func (c Config) maxPending(eta int) int {
	return max(1024, int(c.horizon(eta))*c.groupTickets())
}

// Tickets is how many tickets may be outstanding at once.
func (c Config) Tickets() int { return c.limits(c.Eta, c.Depth).Concurrency * c.groupTickets() }

// horizon is how many prompts beyond the last one issued may have messages in the stream.
func (c Config) horizon(eta int) uint64 { return uint64(4 * (eta + 2) * c.rounds() * c.BatchGroups) }

// rounds is how often the prompts of one step may be issued.
func (c Config) rounds() int {
	if c.Selection.Accumulate.Rows == 0 {
		return 1
	}
	return c.Selection.Accumulate.MaxRounds
}

// mostRows is how many rows the trajectories of one step can have; no bound without limits.max_segments.
func (c Config) mostRows() int {
	if c.Limits.MaxSegments == 0 {
		return math.MaxInt
	}
	samples := c.GroupSize
	if c.Selection.Resample.By == selection.ResampleCorrect {
		samples = c.Selection.Resample.Take
	}
	return c.rounds() * c.BatchGroups * samples * c.Limits.MaxSegments
}

// StreamMessages is how many messages the trajectory stream must hold at the least: what the checkpoints that the
// run can go back to need, what waits for a batch, and what ends between two checkpoints.
func (c Config) StreamMessages() int {
	return c.rounds()*c.BatchGroups*c.groupTickets()*(c.Checkpoint.Keep+c.Eta+1) + c.Checkpoint.Messages
}
