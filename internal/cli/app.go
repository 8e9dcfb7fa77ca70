package cli

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/internal/telemetry"
)

// app holds the state that every subcommand starts from.
type app struct {
	// doors are the parts that a configuration can name.
	doors parts.Registry
	// memory is the memory that the process may use; its zero value bounds nothing.
	memory machine.Memory
	// ownsProcess says that the process has no other purpose than this command line: its priority may be lowered.
	ownsProcess bool
	console
	// args are the command line without the program's name: they hold the names of the user's own sections, each key of
	// which is a flag.
	args  []string
	files []string

	once      sync.Once
	reference *keyReference // the result of keys
}

// keys returns every key that there is without a configuration.
func (a *app) keys() *keyReference {
	a.once.Do(func() { a.reference = newKeyReference(a.doors, a.args) })
	return a.reference
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Reinforcement learning for LLM agents over a message stream",
		Long: `Weir trains LLM agents by reinforcement learning over NATS JetStream. weir up runs every role in one process;
broker, trainer, producer and inference are the same roles apart.

Every configuration key is a flag (--trainer.eta 4), an environment variable (WEIR_TRAINER__ETA=4) and a line of a
file (--config run.yaml). Flags win over the environment, that over files, and those over defaults. weir config
explain lists the keys; docs/configuration.md has them on one page.`,
		SilenceErrors: true, SilenceUsage: true, Version: versionText(buildVersion(debug.ReadBuildInfo())),
	}
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(a.explainFlagError)
	root.PersistentFlags().StringArrayVar(&a.files, "config", nil, "a YAML file; may be given again, later ones win")
	a.keyFlags(root)
	addCommands(a, root)
	faultsOfUsage(root)
	a.helpOfKeys(root)
	return root
}

// addCommands adds every command in the group that the help lists it in.
func addCommands(a *app, root *cobra.Command) {
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"run", "Train:", []*cobra.Command{
			newUpCommand(a), newBrokerCommand(a), newTrainerCommand(a), newProducerCommand(a), newInferenceCommand(a), newToolsCommand(a),
			newArchiveCommand(a), newTorchWorkerCommand(a), newScaleCommand(a), newControlCommand(a), newCompareCommand(a),
		}},
		{"look", "Look at a run:", []*cobra.Command{
			newStatusCommand(a), newViewCommand(a), newWorkersCommand(a), newStreamsCommand(a), newTrajectoryCommand(a), newTraceCommand(a),
			newInspectCommand(a), newAuditCommand(a), newReplayCommand(a), newBranchCommand(a), newRescoreCommand(a), newForkCommand(a),
			newRecordsCommand(a),
		}},
		{"model", "Ask, score and serve a model:", []*cobra.Command{
			newEvalCommand(a), newChatCommand(a), newAgentCommand(a), newServeCommand(a), newModelCommand(a), newGenerateCommand(a),
			newLogprobsCommand(a), newTokenizeCommand(a),
		}},
		{"tools", "Try tools and data:", []*cobra.Command{newToolCommand(a), newToolserverCommand(a), newMcpCommand(a), newDataCommand(a)}},
		{"maintain", "Set up and maintain:", []*cobra.Command{
			newConfigCommand(a), newDoctorCommand(a), newKeysCommand(a), newOpenCommand(a), newSeatCommand(a), newPluginCommand(a),
			newHealthcheckCommand(), newVersionCommand(a),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("maintain")
	root.SetCompletionCommandGroupID("maintain")
}

// faultsOfUsage gives wrong arguments, of each command below, the exit code of wrong usage.
func faultsOfUsage(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		faultsOfUsage(below)
	}
	if cmd.HasParent() && cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			hint := fmt.Sprintf("%s --help lists the commands", cmd.CommandPath())
			cmd.SuggestionsMinimumDistance = 2
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = fmt.Sprintf("did you mean %s?", near[0])
			}
			return fault.Usagef("unknown command %q for %q: %s", args[0], cmd.CommandPath(), hint)
		}
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			switch {
			case err == nil:
				return nil
			case strings.HasPrefix(err.Error(), "unknown command"), strings.HasPrefix(err.Error(), "accepts "):
				// cobra's words speak of a subcommand, or of counts, where an argument is too many or too few.
				given := fmt.Sprintf("%d arguments", len(args))
				if len(args) == 1 {
					given = "1 argument"
				}
				err = fmt.Errorf("%s given: want %s; %s --help says more", given, cmd.UseLine(), cmd.CommandPath())
			}
			return fault.Usage(err)
		}
	}
}

// explainFlagValue says of a flag's value that is no number what is wanted, in the place of the words of the library that parses it.
func explainFlagValue(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	kind := "a whole number"
	switch wrong.GetFlag().Value.Type() {
	case "int", "int32", "int64":
	case "uint", "uint32", "uint64":
		kind = "a whole number from 0"
	case "float64":
		kind = "a number"
	case "duration":
		kind = "a time, such as 30s or 5m"
	default:
		return err
	}
	return fmt.Errorf("--%s %s: want %s", wrong.GetFlag().Name, wrong.GetValue(), kind)
}

// explainFlagError explains an unknown flag, and names the flag that was probably meant. A flag that looks like a key is a fault of the
// configuration, whichever way it came.
func (a *app) explainFlagError(cmd *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return fault.Usage(explainFlagValue(err))
	}
	if strings.Contains(name, ".") {
		if _, near := config.Get(a.keys().known, name); near != nil {
			return config.Invalid(fmt.Errorf("unknown flag --%w", near))
		}
	}
	if name == "json" && cmd.Flags().Lookup("output") != nil {
		return fault.Usagef("unknown flag --json: -o json prints JSON")
	}
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	if near := config.Nearest(name, flags); near != "" {
		return fault.Usagef("unknown flag --%s; did you mean --%s?", name, near)
	}
	return fault.Usagef("unknown flag --%s: %s --help lists the flags", name, cmd.CommandPath())
}

// loadConfig reads the configuration as the command line asks for it.
func (a *app) loadConfig(cmd *cobra.Command) (*config.Config, map[string]string, error) {
	return assembly.Resolve(a.doors, a.configSources(cmd))
}

// configSources are the places that the command line names.
func (a *app) configSources(cmd *cobra.Command) config.Sources {
	return config.Sources{Files: a.files, Environ: a.environ, Flags: a.keys().typedKeys(cmd)}
}

// openProcess loads the configuration and opens the shared parts of every role: logs, metrics and health. A command that names no parts to
// wait for is no role and serves nothing.
func (a *app) openProcess(cmd *cobra.Command, parts ...string) (*assembly.Run, error) {
	cfg, origins, err := a.loadConfig(cmd)
	if err != nil {
		return nil, err
	}
	s, err := a.processOf(cfg, parts...)
	if err != nil {
		return nil, err
	}
	s.Origins = origins
	return s, nil
}

// processOf is the process of a run as it is configured. A command that names no parts to wait for is no role.
func (a *app) processOf(cfg *config.Config, parts ...string) (*assembly.Run, error) {
	if len(parts) == 0 {
		// It asks and ends: it must not take the port of the role beside it, and its answer is its output.
		cfg.Telemetry.Listen = ""
		if cfg.Log.Level == "info" {
			cfg.Log.Level = "warn"
		}
		if cfg.Log.Format == "auto" {
			cfg.Log.Format = "text" // somebody reads it beside the answer, whatever it is written to
		}
	}
	if _, shared := a.err.(*screen); shared && cfg.Log.Format == "auto" {
		cfg.Log.Format = "text"
	}
	version, commit := buildVersion(debug.ReadBuildInfo())
	return assembly.New(cfg, assembly.Options{
		Parts: a.doors, Memory: a.memory, Files: a.files, Environ: a.environ, Notes: a.err, Answers: a.out,
		Log: telemetry.NewLogger(a.err, cfg.Log), Version: version, Commit: commit,
	}, parts...)
}
