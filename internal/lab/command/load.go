package command

import (
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lab/load"
)

// brokerCommand is the command that is the broker of a load.
const brokerCommand = "load-broker"

func (l *lab) loadCommand() *cobra.Command {
	c := load.Default()
	cmd := &cobra.Command{
		Use: "load", Short: "Put the load of many producers on a broker", Args: cobra.NoArgs,
		Long: `Load starts a broker and lets many producers, engines and a reader work through it: tickets, leases, trajectories and
generate calls are the same as a run's. Work of a processor or a GPU elsewhere is a clock here: an engine has slots that are
busy for a time a token, a tool waits. It prints what went through, how long each part took, and what was full.`,
		Example: "  weir-lab load\n  weir-lab load --producers 1000 --slots 1 --engines 0 --for 10s",
	}
	flags := cmd.Flags()
	flags.IntVar(&c.Producers, "producers", c.Producers, "producers, each with a connection of its own")
	flags.IntVar(&c.Slots, "slots", c.Slots, "episodes that a producer runs at once")
	flags.IntVar(&c.Tokens, "tokens", c.Tokens, "tokens of a trajectory")
	flags.IntVar(&c.Turns, "turns", c.Turns, "turns of an episode")
	flags.IntVar(&c.TurnTokens, "turn-tokens", c.TurnTokens, "tokens sampled in a turn")
	flags.DurationVar(&c.Token, "token", c.Token, "clock of an engine: time a token")
	flags.DurationVar(&c.Tool, "tool", c.Tool, "clock of a tool: time a call, one a turn")
	flags.IntVar(&c.Engines, "engines", c.Engines, "engines on the stream; 0: the producer waits for the tokens itself")
	flags.IntVar(&c.EngineSlots, "engine-slots", c.EngineSlots, "calls that an engine samples at once")
	flags.DurationVar(&c.For, "for", c.For, "how long it is measured, after all clients have connected")
	flags.DurationVar(&c.Lease, "lease", c.Lease, "length of a lease, renewed every third of it")
	flags.BoolVar(&c.Sync, "sync", c.Sync, "the broker syncs every message to its disk")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.Validate(); err != nil {
			return fault.Usage(err)
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		report, err := load.Measure(cmd.Context(), c, []string{self, brokerCommand})
		if err != nil {
			return err
		}
		return l.printReport(format, report, func(w io.Writer) { report.Print(w) })
	}
	return cmd
}

func (l *lab) loadBrokerCommand() *cobra.Command {
	return &cobra.Command{
		Use: brokerCommand + " folder sync", Short: "Be the broker of a load", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			sync, err := strconv.ParseBool(args[1])
			if err != nil {
				return fault.Usage(err)
			}
			return load.Serve(cmd.Context(), args[0], sync)
		},
	}
}
