package chaos

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// The modes.
const (
	// ModeProcesses runs broker, trainer, inference and two producers as processes, and the archive where it is a role.
	ModeProcesses = "processes"
	// ModeEmbedded runs all roles in a single process.
	ModeEmbedded = "embedded"
)

// KillAfterEnv is the environment variable that makes a trainer end itself with SIGKILL when it has done a part of
// a step for the so-manieth time: "publish:3".
const KillAfterEnv = "WEIR_CHAOS_KILL_AFTER"

// Stages are the parts of a step after which a trainer can end itself, in order.
func Stages() []string {
	return []string{
		"renew", "batch", "update", "commit", "model", "state", "seal", "rename", "record", "prune", "ack", "purge", "publish",
		"control", "issue",
	}
}

// Config says how a run is made and broken.
type Config struct {
	// Program is the program whose commands are the roles, with its first arguments. Dir is the folder for logs and links' records.
	Program []string
	Dir     string
	// File is the resolved configuration that every role reads, Run the run's name in it, Broker the host:port that
	// its broker listens on, Checkpoints the trainer's folder, Eta the staleness bound, Reuse the bound of uses.
	// Store is the broker's folder, Lease how long a producer keeps a ticket without a word to the broker.
	File, Run, Broker, Checkpoints, Store string
	Eta, Reuse                            int
	Lease                                 time.Duration
	// Archive is how the run keeps the messages of its stream.
	Archive Archive
	// Journal is whether episodes keep journals from their first call of a tool on: then no call may be made twice.
	Journal bool
	// Mode is ModeProcesses or ModeEmbedded.
	Mode string
	// Engine trains and samples, as [WithEngine] has set it up: a value of Engines.
	Engine string
	// Seed fixes which faults come, in which order and how far apart.
	Seed uint64
	// Duration is how long faults go on, Every the mean time between them.
	Duration, Every time.Duration
	// Steps is the least number of steps that the run must do before the faults begin and after they end.
	Steps int64
	// Patience is how long the run may take for these steps.
	Patience time.Duration
	// Fill also fills the trajectory stream to its limits, and the ticket stream with it.
	Fill bool
	// Lose also has the broker's store come back empty, or shorter than it was read.
	Lose bool
	// Kills, when it is not empty, takes the place of random faults: each role that it names is killed once, in turn,
	// and a step goes by before the next. "trainer@publish:2" has the role end itself after its second publish; "trainer/rank",
	// "inference/sampler" and "inference/server" are processes that a role has started.
	Kills []string
	// Ends says that the trainer comes to the end of its steps by itself; the run is then waited for, and left alone
	// but for Kills.
	Ends bool
	// Out gets a line for each thing that happens.
	Out io.Writer
}

// Validate reports every fault.
func (c *Config) Validate() error {
	var errs []error
	errs = append(errs,
		check.OneOf("mode", c.Mode, ModeProcesses, ModeEmbedded),
		check.OneOf("engine", c.Engine, Engines()...),
		check.Positive("minutes", c.Duration.Minutes()),
		check.Positive("every", c.Every),
	)
	for _, kill := range c.Kills {
		name, at, staged := strings.Cut(kill, "@")
		all := append(c.roleNames(), workerNames(c.Mode, c.Engine)...)
		if !slices.Contains(all, name) {
			errs = append(errs, fmt.Errorf("kill: %q: no role is named so; there are %s", name, strings.Join(all, ", ")))
		}
		stage, times, _ := strings.Cut(at, ":")
		if n, err := strconv.Atoi(times); staged && (err != nil || n < 1 || !slices.Contains(Stages(), stage)) {
			errs = append(errs, fmt.Errorf("kill: %q: after the @ want one of %s, a colon and a number from 1 on", kill, strings.Join(Stages(), ", ")))
		}
	}
	return check.All(errs...)
}

// calls is the file in which tools write their calls down.
func (c *Config) calls() string { return filepath.Join(c.Dir, "calls") }

// roleNames are the names of the processes of a run.
func (c *Config) roleNames() []string {
	if c.Mode == ModeEmbedded {
		return []string{roleUp}
	}
	all := []string{roleBroker, roleTrainer, roleInference, "producer-1", "producer-2"}
	if c.Archive.hasRole(c.Mode) {
		all = append(all, roleArchive)
	}
	return all
}
