// Package command is the command line of the laboratory: a file for each command, and their shared parts.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/cli"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lab/chaos"
	"github.com/weir-rl/weir/internal/parts"
)

// roleCommand is the first argument with which this program is weir itself: the roles of a run that is broken or measured are such
// processes.
const roleCommand = "weir"

// The exit statuses; 1 is every other failure.
const (
	exitFailure = 1
	exitUsage   = 2
	exitConfig  = 3
)

// Main runs the command line of this process and returns its exit status.
func Main() int {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleCommand:
			return runWeir()
		case chaos.StandIn:
			return fakeserver.Main(os.Args[2:], native.Backend{Options: native.Options{Threads: 1}}.NewDecoder)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l := &lab{doors: builtin.Doors(), out: os.Stdout, err: os.Stderr, environ: os.Environ()}
	return exitStatus(l.rootCommand().ExecuteContext(ctx), os.Stderr)
}

// runWeir is the user's program, with a trainer that can kill itself after a part of a step.
func runWeir() int {
	doors := builtin.Doors()
	var err error
	if doors.AfterStage, err = chaos.KillAfter(os.Environ()); err != nil {
		return exitStatus(config.Invalid(err), os.Stderr)
	}
	if err = chaos.RecordCalls(&doors, os.Environ()); err != nil {
		return exitStatus(err, os.Stderr)
	}
	doors.AfterStage = stageClock(os.Environ(), doors.AfterStage)
	os.Args = append(os.Args[:1:1], os.Args[2:]...)
	return cli.Main(doors)
}

// exitStatus prints an error that is not nil, and returns its exit status.
func exitStatus(err error, out io.Writer) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(out, "weir-lab:", err)
	switch {
	case errors.As(err, new(*fault.UsageError)), strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	case errors.As(err, new(*config.InvalidError)):
		return exitConfig
	}
	return exitFailure
}

// lab holds the start of every command.
type lab struct {
	// doors are the parts that a configuration can name.
	doors    parts.Registry
	out, err io.Writer
	environ  []string
	// files are the configuration files that the command line names.
	files []string
}

func (l *lab) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "weir-lab", Short: "Break and measure Weir",
		Long: `Weir-lab holds what breaks and measures Weir, and what no user's run needs. With chaos and bench every configuration key is a flag
(--trainer.eta 4), an environment variable (WEIR_TRAINER__ETA=4) and a line of a file (--config run.yaml), as with weir.`,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetOut(l.out)
	root.SetErr(l.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fault.Usage(err) })
	root.AddCommand(
		l.chaosCommand(), l.benchCommand(), l.loadCommand(), l.loadBrokerCommand(), l.episodesProducerCommand(), l.mutantsCommand(),
	)
	return root
}

func (l *lab) benchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure this machine and its broker, as ratios within one run"}
	cmd.AddCommand(l.streamCommand(), l.weightsCommand(), l.checkpointsCommand(), l.shadowsCommand(), l.algorithmsCommand(),
		l.distancesCommand())
	return cmd
}
