package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lab/episodes"
)

// episodesProducer is the command that is a producer of broken episodes.
const episodesProducer = "chaos-producer"

func (l *lab) episodesCommand() *cobra.Command {
	c := episodes.Default()
	cmd := &cobra.Command{
		Use: "episodes", Short: "Kill producers amid episodes; compare with the same tickets", Args: cobra.NoArgs,
		Long: `Episodes plays tickets twice at the same time: left alone, and with producers that are killed in turn in the middle of
their episodes. Tools take a log-normal or a bimodal time; the seed fixes tokens and times. It compares what is trained on:
lengths and durations by the Kolmogorov-Smirnov test, tokens that were sampled again, calls that were made twice, and the time
that was lost. The exit status says whether the journal's promises held; with --journal off they are meant to fail.`,
		Example: "  weir-lab chaos episodes\n  weir-lab chaos episodes --journal off --tools bimodal",
	}
	flags := cmd.Flags()
	flags.IntVar(&c.Episodes, "episodes", c.Episodes, "tickets")
	flags.IntVar(&c.Producers, "producers", c.Producers, "producers, each a process")
	flags.IntVar(&c.Slots, "slots", c.Slots, "episodes that a producer runs at once")
	flags.IntVar(&c.Engines, "engines", c.Engines, "engines")
	flags.StringVar(&c.Tools, "tools", c.Tools, "times of tools: lognormal or bimodal")
	completeFlag(cmd, "tools", episodes.ToolsLogNormal, episodes.ToolsBimodal)
	flags.DurationVar(&c.Tool, "tool", c.Tool, "time of a tool call")
	flags.DurationVar(&c.Token, "token", c.Token, "time of a token")
	flags.DurationVar(&c.Kill, "kill", c.Kill, "time between kills of a producer")
	flags.DurationVar(&c.Lease, "lease", c.Lease, "length of a lease")
	flags.StringVar(&c.Journal.Mode, "journal", c.Journal.Mode, "producer.journal.mode: off, auto or on")
	flags.DurationVar(&c.Journal.Every, "journal-every", c.Journal.Every, "producer.journal.every")
	flags.Uint64Var(&c.Seed, "seed", c.Seed, "fixes the episodes")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := c.Validate(); err != nil {
			return fault.Usage(err)
		}
		self, home, err := findProgramAndFolder()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
		play := func(name string, c episodes.Config) (*episodes.Played, error) {
			dir := filepath.Join(home, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, fmt.Errorf("make a folder for the episodes: %w", err)
			}
			return episodes.Play(cmd.Context(), c, []string{self, episodesProducer}, dir)
		}
		calm := c
		calm.Kill = 0
		// Both at once: whatever else the machine does, it does to both.
		var alone, killed *episodes.Played
		var both errgroup.Group
		both.Go(func() (err error) {
			alone, err = play("alone", calm)
			return err
		})
		both.Go(func() (err error) {
			killed, err = play("killed", c)
			return err
		})
		if err := both.Wait(); err != nil {
			return err
		}
		report := episodes.Compare(c, alone, killed)
		if err := l.printReport(format, report, func(w io.Writer) { report.Print(w) }); err != nil {
			return err
		}
		return report.Err()
	}
	return cmd
}

// sameCommand plays the same tickets in several shapes.
func (l *lab) sameCommand() *cobra.Command {
	c := episodes.Default()
	c.Episodes, c.Slots, c.Tool, c.Kill, c.Lease = 1000, 16, 40*time.Millisecond, 2*time.Second, 2*time.Second
	cmd := &cobra.Command{
		Use: "same", Short: "Play the same tickets on 1, 2 and 8 producers; compare token by token", Args: cobra.NoArgs,
		Long: `Same plays tickets with tools at one policy version on 1, 2 and 8 producers and as many engines, left alone, and on 2 and 8
whose producers are killed in turn. Every ticket must give the same episode: tokens, log-probabilities, calls and what they returned.
The exit status says whether it did. With --engine native the tokens are those of the engine in Go; inference servers and PyTorch
do not promise them.`,
		Example: "  weir-lab chaos same\n  weir-lab chaos same --engine native --episodes 200",
	}
	flags := cmd.Flags()
	flags.IntVar(&c.Episodes, "episodes", c.Episodes, "tickets")
	flags.IntVar(&c.Slots, "slots", c.Slots, "episodes that a producer runs at once")
	flags.StringVar(&c.Engine, "engine", c.Engine, "stand-in or native")
	completeFlag(cmd, "engine", episodes.EngineStandIn, episodes.EngineNative)
	flags.DurationVar(&c.Tool, "tool", c.Tool, "time of a tool call")
	flags.DurationVar(&c.Kill, "kill", c.Kill, "time between kills of a producer; 0 kills none")
	flags.Uint64Var(&c.Seed, "seed", c.Seed, "fixes the episodes")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := c.Validate(); err != nil {
			return fault.Usage(err)
		}
		self, home, err := findProgramAndFolder()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
		same, err := episodes.PlaySame(cmd.Context(), c, []string{self, episodesProducer}, home)
		if err != nil {
			return err
		}
		if err := l.printReport(format, same, func(w io.Writer) { same.Print(w) }); err != nil {
			return err
		}
		return same.Err()
	}
	return cmd
}

func (l *lab) episodesProducerCommand() *cobra.Command {
	return &cobra.Command{
		Use: episodesProducer + " configuration", Short: "Be a producer of broken episodes", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return episodes.RunProducer(cmd.Context(), args[0]) },
	}
}

// findProgramAndFolder finds this program, whose processes play the episodes, and makes a folder for them, which the caller removes.
func findProgramAndFolder() (self, home string, err error) {
	if self, err = os.Executable(); err != nil {
		return "", "", fmt.Errorf("find this program: %w", err)
	}
	if home, err = os.MkdirTemp("", "weir-episodes-"); err != nil {
		return "", "", fmt.Errorf("make a folder for the episodes: %w", err)
	}
	return self, home, nil
}
