package command

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lab/chaos"
	"github.com/weir-rl/weir/internal/ports"
	"github.com/weir-rl/weir/producers"
)

func (l *lab) chaosCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "chaos", Short: "Break a real training run; prove nothing is lost or used twice", Args: cobra.NoArgs,
		Long: `Chaos runs a small training run, with every role as a process of its own or all in one, and at random instants kills
roles with SIGKILL, the trainer also between any two parts of a step; freezes them; stalls their links; and sends
malformed, truncated, foreign, duplicate, replayed and oversized messages, and well-formed lies about samples of open groups; steals
tickets; kills the archive too where it is a role of its own; takes the broker away for longer than a lease; fills the ticket and the trajectory stream at once; and has the broker's store
come back empty, or shorter than it was read. With --engine, ranks and samplers of PyTorch or inference servers are killed and frozen
as well, and none of them may be left when its role has ended. Each call of a tool counts as having an effect, and none may be made twice
where producer.journal.mode is not off; it is on here. A witness beside the trainer writes down
every message that the broker stored. In the end every one of them must be accounted for, and a summary is printed;
the exit status says whether every promise held. The effective time is the steps that were done while faults came, times the seconds that
a step took before and after, as a share of the time with faults.`,
		Example: "  weir-lab chaos --minutes 10\n  weir-lab chaos --minutes 1 --mode embedded --seed 7 --keep\n  weir-lab chaos --minutes 5 --every 6s --engine torch",
	}
	minutes := cmd.Flags().Float64("minutes", 1, "how long faults go on")
	every := cmd.Flags().Duration("every", 1200*time.Millisecond, "the mean time between faults")
	mode := cmd.Flags().String("mode", chaos.ModeProcesses, "processes or embedded")
	completeFlag(cmd, "mode", chaos.ModeProcesses, chaos.ModeEmbedded)
	engine := cmd.Flags().String("engine", chaos.EngineNative, "native, torch, vllm or sglang")
	completeFlag(cmd, "engine", chaos.Engines()...)
	patience := cmd.Flags().Duration("patience", 2*time.Minute, "how long the run may take for its steps")
	seed := cmd.Flags().Uint64("seed", 1, "fixes the faults, their order and distances")
	dir := cmd.Flags().String("dir", "", "a folder for the run; a temporary one by default")
	keep := cmd.Flags().Bool("keep", false, "leave the folder, which else goes when all was well")
	fill := cmd.Flags().Bool("fill", true, "also fill the trajectory and ticket streams to their limits")
	lose := cmd.Flags().Bool("lose", true, "also have the broker's store come back empty, or shorter than it was read")
	kills := cmd.Flags().StringSlice("kill", nil, "kill just these roles, once each, in turn, in place of random faults")
	steps := cmd.Flags().Int64("steps", 20, "steps that the run must do before the faults, and after them")
	l.addConfigFlags(cmd)
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		c := chaos.Config{
			Mode: *mode, Engine: *engine, Seed: *seed, Duration: time.Duration(*minutes * float64(time.Minute)), Every: *every,
			Steps: *steps, Patience: *patience, Fill: *fill, Lose: *lose, Kills: *kills, Out: l.err,
		}
		if settings, err := l.resolveConfig(l.configSources(cmd)); err == nil { // else chaosRun says why
			c.Archive = chaos.ArchiveOf(settings)
		}
		if err := c.Validate(); err != nil { // before anything is made
			return fault.Usage(err)
		}
		home := *dir
		if home == "" {
			if home, err = os.MkdirTemp("", "weir-chaos-"); err != nil {
				return fmt.Errorf("make a folder for the run: %w", err)
			}
		}
		port, err := ports.Reserve()
		if err != nil {
			return err
		}
		defer port.Release() //nolint:errcheck // the process ends soon
		if c.Program, err = selfProgram(); err != nil {
			return err
		}
		cfg, file, err := l.chaosRun(cmd, &c, home, port.Address, *minutes)
		if err != nil {
			return err
		}
		c.Dir, c.File = filepath.Join(home, "logs"), file
		c.Run, c.Broker, c.Checkpoints = cfg.Run.Name, cfg.Broker.Listen, cfg.Trainer.Checkpoint.Dir
		c.Eta, c.Reuse = cfg.Trainer.Eta, cfg.Trainer.Reuse
		c.Store, c.Lease = cfg.Broker.StoreDir, cfg.Streams.Lease
		c.Archive, c.Journal = chaos.ArchiveOf(cfg), cfg.Producer.Journal.Mode != producers.JournalOff
		report, err := chaos.Run(cmd.Context(), c)
		if err != nil {
			return errors.Join(err, fmt.Errorf("the run is in %s", home))
		}
		if err := l.printReport(format, report, report.Print); err != nil {
			return err
		}
		if err := report.Err(); err != nil {
			return fmt.Errorf("%w; the run is in %s", err, home)
		}
		if *dir == "" && !*keep {
			return os.RemoveAll(home)
		}
		fmt.Fprintln(l.err, "the run is in", home)
		return nil
	}
	cmd.AddCommand(l.episodesCommand(), l.sameCommand())
	return cmd
}

// chaosRun resolves the configuration of the run, whose broker listens on an address unless the command names another address, and writes it
// where the roles read it.
func (l *lab) chaosRun(cmd *cobra.Command, of *chaos.Config, home, listen string, minutes float64) (*config.Config, string, error) {
	from := l.configSources(cmd)
	from.Tasks = []string{l.doors.Quick}
	from.Change = func(c *config.Config) {
		chaos.Small(c)
		chaos.WithEngine(c, of.Engine, of.Program[0])
		// The stream is filled with up to max_trajectory_bytes of junk about once a minute, and all of it is refused. Messages that
		// has left REJECTED cannot be accounted for.
		c.Streams.RejectedMaxBytes += int64(math.Ceil(minutes)) * 2 * c.Streams.MaxTrajectoryBytes
		c.Run.Dir = home
		if !cmd.Flags().Changed("broker.listen") {
			c.Broker.Listen = listen
		}
	}
	cfg, err := l.resolveConfig(from)
	if err != nil {
		return nil, "", err
	}
	file, err := chaos.WriteFile(cfg, home)
	return cfg, file, err
}
