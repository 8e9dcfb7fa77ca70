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

	// GroupSize is how many trajectories are sampled of a prompt. An advantage that needs a baseline (remax) adds a rollout, sampled
	// greedily, which is not trained on.
	GroupSize int `koanf:"group_size" default:"8" above:"0"`
	// MinGroup is how many usable trajectories a group needs when some were cancelled or went stale, a baseline not counted; a group with
	// fewer is dropped and its prompt issued again. GroupSize here means all or nothing.
	MinGroup int `koanf:"min_group" default:"2" above:"0"`
	// MaxDroppedGroups bounds the groups that the selection drops in one step: after that the step goes on with the groups it has, at least
	// one. 0 is no bound.
	MaxDroppedGroups int `koanf:"max_dropped_groups" default:"128" min:"0"`
	// StopWhenStuck ends the run with an error when MaxDroppedGroups, or 128 where that has no bound, were dropped for a step and no group
	// was kept, or when producers gave up 20 samples in a row as their episodes failed. Otherwise the run reports this with its likely cause,
	// and waits for a question whose samples differ in reward, or for an episode that succeeds.
	StopWhenStuck bool `koanf:"stop_when_stuck"`
	// MaxAttempts bounds how often a prompt is issued; after that another prompt takes its place. 0 is no bound.
	MaxAttempts int `koanf:"max_attempts" default:"10" min:"0"`

	// Reuse is how many steps in a row train on each batch, as PPO's epochs do, but each step is a version of its own: the log-probabilities
	// of its start are computed anew, ratios are against those that were sampled, and inference goes on to it. With Reuse k a run needs about a
	// k-th of the rollouts. A group is used again only while none of its trajectories is more than Eta versions old: Eta must be at least
	// Reuse-1, and work is issued Reuse-1 versions less ahead. Trajectories that are trained on again are further from the policy: keep a loss
	// that corrects for it, such as decoupled_ppo.
	Reuse int `koanf:"reuse" default:"1" above:"0" max:"32"`

	// Branch has some samples of a group begin with turns of others.
	Branch branch.Config `koanf:"branch"`

	// GroupTimeout bounds how long the trainer waits while no trajectory comes and every outstanding ticket is leased: then the awaited
	// samples are given up, and groups that lack too many samples are issued again. The least value in force is three times limits.timeout.
	// 0, no limits.timeout, or deterministic turns the timeout off. A sample whose ticket is gone is given up at once in any case.
	GroupTimeout time.Duration `koanf:"group_timeout" default:"15m" min:"0s"`

	// Eta bounds staleness: the oldest token of a trajectory may be this many versions behind the trainer. 0 is synchronous training. It can
	// be changed while the run goes on.
	Eta int `koanf:"eta" default:"4" min:"0"`
	// Depth is how many versions ahead work is issued, at most Eta; -1 follows Eta. It can be changed while the run goes on.
	Depth int `koanf:"depth" default:"-1"`
	// Staleness is what becomes of an episode that would outlast Eta. refuse trains on, and refuses the episode when it comes. wait begins no
	// step that would make a running episode too old: nothing is refused for its age, and a step lasts as long as the slowest episode of the
	// Eta versions before. An episode that does not come is waited for as long as limits.timeout and streams.lease allow together; with
	// limits.timeout 0, or deterministic, until its ticket is gone. pace is wait, and sends the tickets of episodes that are predicted to be
	// long first, by the prompt's or the source's episodes so far. A short batch, which max_dropped_groups brings about, waits for no group.
	Staleness string `koanf:"staleness" default:"refuse" oneof:"refuse wait pace"`
	// Hold is how many further batches must be ready before a step begins, at most Depth: the step then trains on trajectories that are
	// Hold versions old whatever the speeds. Hold is for studies of staleness.
	Hold int `koanf:"hold"`
	// MaxConcurrentGroups bounds the groups in flight. 0 leaves Depth alone to bound them.
	MaxConcurrentGroups int `koanf:"max_concurrent_groups" min:"0"`
	// Deterministic judges groups in the order of issue, so that with Eta 0 a run gives the same weights bit for bit whatever the timing. It
	// costs waiting when Eta is above 0.
	Deterministic bool `koanf:"deterministic"`

	Sampling   Sampling          `koanf:"sampling"`
	Limits     Limits            `koanf:"limits"`
	Checkpoint checkpoint.Config `koanf:"checkpoint"`
	Archive    archive.Config    `koanf:"archive"`
	Bundles    Bundles           `koanf:"bundles"`
	Publish    Publish           `koanf:"publish"`
}

// Sampling is how rollouts draw tokens.
type Sampling struct {
	// Temperature must be positive. A baseline is drawn greedily whatever it is.
	Temperature float32 `koanf:"temperature" default:"1" above:"0"`
	// MaxTokens bounds one generate call; 0 leaves limits.max_tokens alone to bound it.
	MaxTokens int `koanf:"max_tokens" min:"0"`
}

// Limits bound one rollout.
type Limits struct {
	// MaxTurns bounds the tool calls.
	MaxTurns int `koanf:"max_turns" default:"4" min:"0"`
	// MaxTokens bounds the tokens of a segment, prompt and tools included. With model.folder the default is the model's number of positions,
	// at most 4096.
	MaxTokens int `koanf:"max_tokens" default:"96" above:"0"`
	// Timeout bounds the wall-clock of a rollout; 0 is no bound.
	Timeout time.Duration `koanf:"timeout" default:"2m" min:"0s"`
	// MaxTotalTokens bounds the tokens of all segments of a rollout together, each segment counted whole; 0 is no bound. The rollout ends
	// where it has no room left.
	MaxTotalTokens int `koanf:"max_total_tokens" min:"0"`
	// MaxSegments bounds the contexts of a rollout: a trajectory with more is refused. An agent that keeps to one context has one segment. 0
	// is no bound.
	MaxSegments int `koanf:"max_segments" default:"64" min:"0"`
	// MaxReward bounds a reward by magnitude: its components, process rewards and all of them together. A trajectory beyond it is refused,
	// because it alone would decide the step. 0 is no bound.
	MaxReward float64 `koanf:"max_reward" default:"1e+06" min:"0"`
}

// Publish is how versions are published.
type Publish struct {
	// DType is float32 or bfloat16.
	DType string `koanf:"dtype" default:"float32" oneof:"float32 bfloat16"`
	// ShardBytes bounds a shard; a larger tensor has a shard to itself. Readers fetch shards in parallel.
	ShardBytes int64 `koanf:"shard_bytes" default:"16777216" above:"0"`
	// Adapter publishes low-rank adapters alone where the engine trains adapters beside frozen weights (model.lora), a few hundredths of
	// the bytes: readers fetch the frozen weights once and merge each version, with the bits of a merged export. False publishes the merged
	// weights. Engines without adapters do not read this key.
	Adapter bool `koanf:"adapter" default:"true"`
}

// DefaultConfig are the settings of the demonstration.
func DefaultConfig() Config {
	c := check.Default[Config]()
	c.Config = learner.DefaultConfig()
	return c
}

// Validate reports every fault.
func (c Config) Validate() error {
	facts, r := c.Advantage.Facts(), c.Selection.Resample
	least, learns := max(1, facts.LeastGroup), max(1, facts.LearnsFrom)
	if c.Loss.Facts().NoAdvantages {
		learns = 1
	}
	takes := least // samples that are compared with their whole group may be few
	if r.By == selection.ResampleCorrect {
		takes = max(least, learns)
	}
	depth := c.Depth >= admission.FollowEta && c.Depth <= c.Eta // else there is no depth to compare with
	pace := c.admissionLimits(c.Eta, c.Depth).Pace()
	return check.All(
		check.Fields(c),
		check.That(c.MinGroup <= c.GroupSize, "min_group", "%d: must not exceed group_size (%d)", c.MinGroup, c.GroupSize),
		check.That(least == 1 || c.MinGroup >= least, "min_group", "%d: advantage %s compares at least %d", c.MinGroup, c.Advantage.Name, least),
		check.That(c.GroupSize < 1 || c.GroupSize >= learns, "group_size",
			"%d: advantage %s is 0 for groups of fewer than %d: nothing would be learnt", c.GroupSize, c.Advantage.Name, learns),
		check.That(r.By == selection.ResampleOff || r.Take < 1 || r.Take >= takes && r.Take <= c.GroupSize, "selection.resample.take",
			"%d: must be between %d, what advantage %s compares, and group_size (%d)", r.Take, takes, c.Advantage.Name, c.GroupSize),
		check.That(c.GroupSize != 1 || !c.Selection.DropsSingles(), "selection.keep_single",
			"false: with group_size 1 every group would be dropped: leave it on, or set selection.drop_zero_variance to false"),
		check.That(c.Selection.Accumulate.Rows <= c.maxStepRows(), "selection.accumulate.rows",
			"%d: batch_groups (%d), selection.accumulate.max_rounds (%d), group_size (%d) and limits.max_segments (%d) allow a step %d rows: lower it, or raise max_rounds",
			c.Selection.Accumulate.Rows, c.BatchGroups, c.Selection.Accumulate.MaxRounds, c.GroupSize, c.Limits.MaxSegments, c.maxStepRows()),
		c.checkReuse(),
		check.That(c.Branch.Trunks <= 0 || c.Branch.Trunks < c.GroupSize, "branch.trunks",
			"%d: must be below group_size (%d), or 0: the other samples are forks", c.Branch.Trunks, c.GroupSize),
		check.That(depth, "depth", "%d: must be -1, or between 0 and eta (%d)", c.Depth, c.Eta),
		check.That(c.Eta < 0 || !depth || c.Hold >= 0 && c.Hold <= pace, "hold", "%d: must be between 0 and the depth (%d)", c.Hold, pace),
		check.That(c.Hold == 0 || c.Selection.Accumulate.Rows == 0, "hold",
			"%d: counts batches of groups: set selection.accumulate.rows to 0", c.Hold),
		check.That(!c.waitsForEpisodes() || c.Selection.Accumulate.Rows == 0, "staleness",
			"%s: counts batches of groups: set selection.accumulate.rows to 0", c.Staleness),
	)
}

// checkReuse reports settings that are at odds with training on a batch more than once.
func (c Config) checkReuse() error {
	if c.Reuse <= 1 {
		return nil
	}
	return check.All(
		check.That(c.Eta >= c.Reuse-1, "reuse",
			"%d: the last use of a batch is %d versions after its first: must not exceed eta (%d) plus 1", c.Reuse, c.Reuse-1, c.Eta),
		check.That(c.Checkpoint.Batches != 0, "reuse",
			"%d: a batch that is used again must outlive a restart: checkpoint.batches must not be 0", c.Reuse),
		check.That(c.Hold == 0, "reuse", "%d: hold (%d) counts a fresh batch at each version: set either", c.Reuse, c.Hold),
		check.That(!c.waitsForEpisodes(), "reuse",
			"%d: staleness %s counts a fresh batch at each version: set it to refuse", c.Reuse, c.Staleness),
		check.That(c.Selection.Accumulate.Rows == 0, "reuse",
			"%d: selection.accumulate.rows (%d) counts a fresh batch at each version: set it to 0", c.Reuse, c.Selection.Accumulate.Rows),
	)
}

// Unread returns the reason why nothing in a run under this configuration depends on a key of the section; "" if something does.
func (c Config) Unread(key string) string {
	section, name, _ := strings.Cut(key, ".")
	why := ""
	switch {
	case section == "branch":
		why = c.Branch.Unread(name)
	case section == "archive":
		why = c.Archive.Unread(name)
	case section == "bundles":
		why = c.Bundles.Unread(name)
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

// holdAtStep returns the hold of a step: the last batches of a run have no others behind them.
func (c Config) holdAtStep(step int64) int { return int(max(0, min(int64(c.Hold), c.Steps-step-1))) }

// admissionLimits returns the limits of the admission controller.
func (c Config) admissionLimits(eta, depth int) admission.Limits {
	l := admission.Limits{Batch: c.BatchGroups, Eta: eta, Depth: depth, Reuse: c.Reuse}
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

// maxPending is how many messages may be delivered and not acked: as many as can be used at once, with room for markers and refused
// messages.
func (c Config) maxPending(eta int) int {
	return max(1024, int(c.cursorHorizon(eta))*c.groupTickets())
}

// Tickets is how many tickets may be outstanding at once.
func (c Config) Tickets() int {
	return c.admissionLimits(c.Eta, c.Depth).Concurrency * c.groupTickets()
}

// cursorHorizon returns how many prompts beyond the last issued prompt may have messages in the stream.
func (c Config) cursorHorizon(eta int) uint64 {
	return uint64(4 * (eta + 2) * c.maxRounds() * c.BatchGroups)
}

// maxRounds returns how often the prompts of one step may be issued.
func (c Config) maxRounds() int {
	if c.Selection.Accumulate.Rows == 0 {
		return 1
	}
	return c.Selection.Accumulate.MaxRounds
}

// maxStepRows returns how many rows the trajectories of one step can have; math.MaxInt without limits.max_segments.
func (c Config) maxStepRows() int {
	if c.Limits.MaxSegments == 0 {
		return math.MaxInt
	}
	samples := c.GroupSize
	if c.Selection.Resample.By == selection.ResampleCorrect {
		samples = c.Selection.Resample.Take
	}
	return c.maxRounds() * c.BatchGroups * samples * c.Limits.MaxSegments
}

// StreamMessages is the least number of messages that the trajectory stream must hold: the messages that the kept checkpoints need, the
// messages that wait for a batch, and the messages that end between two checkpoints.
func (c Config) StreamMessages() int {
	return c.maxRounds()*c.BatchGroups*c.groupTickets()*(c.Checkpoint.Keep+c.Eta+1) + c.Checkpoint.Messages
}
