package cli

import (
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/telemetry"
)

// app is what every subcommand starts from.
type app struct {
	out, err io.Writer
	environ  []string
	files    []string
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Reinforcement learning for LLM agents over a message stream",
		Long: `Weir trains LLM agents by reinforcement learning over NATS JetStream. weir up runs every role in one process;
broker, trainer, producer and inference are the same roles apart.

Every configuration key is a flag (--trainer.eta 4), an environment variable (WEIR_TRAINER__ETA=4) and a line of a
file (--config run.yaml). Flags win over the environment, that over files, and those over defaults. weir config
explain lists the keys; docs/configuration.md has them on one page.`,
		SilenceErrors: true, SilenceUsage: true, Version: versionText(build(debug.ReadBuildInfo())),
	}
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(a.mistyped)
	root.PersistentFlags().StringArrayVar(&a.files, "config", nil, "a YAML file; may be given again, later ones win")
	a.keyFlags(root)
	root.AddCommand(a.upCommand(), a.brokerCommand(), a.trainerCommand(), a.producerCommand(), a.inferenceCommand(),
		a.evalCommand(), a.chatCommand(), a.statusCommand(), a.inspectCommand(), a.configCommand(), a.versionCommand(), a.healthcheckCommand(), a.auditCommand(), a.benchCommand(),
		a.keysCommand(), a.openCommand(), a.trajectoryCommand(), a.serveCommand())
	root.AddCommand(a.chaosCommands()...)
	faultsOfUsage(root)
	helpOfKeys(root)
	return root
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
			return &exitError{exitUsage, fmt.Errorf("unknown command %q for %q: %s", args[0], cmd.CommandPath(), hint)}
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
				err = fmt.Errorf("%d arguments given: want %s; %s --help says more", len(args), cmd.UseLine(), cmd.CommandPath())
			}
			return &exitError{exitUsage, err}
		}
	}
}

// mistyped says what is wrong with an unknown flag, and which one it may have been. One that looks like a key is a fault
// of the configuration, whichever way it came.
func (a *app) mistyped(cmd *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return &exitError{exitUsage, err}
	}
	if strings.Contains(name, ".") {
		if _, near := config.Get(config.Default(), name); near != nil {
			return &exitError{exitConfig, fmt.Errorf("unknown flag --%w", near)}
		}
	}
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	if near := config.Nearest(name, flags); near != "" {
		return &exitError{exitUsage, fmt.Errorf("unknown flag --%s; did you mean --%s?", name, near)}
	}
	return &exitError{exitUsage, fmt.Errorf("unknown flag --%s: %s --help lists the flags", name, cmd.CommandPath())}
}

// load reads the configuration as the command line asks for it.
func (a *app) load(cmd *cobra.Command) (*config.Config, map[string]string, error) {
	return a.loadOver(cmd, config.Default())
}

// loadOver is load with other defaults, which it changes.
func (a *app) loadOver(cmd *cobra.Command, cfg *config.Config) (*config.Config, map[string]string, error) {
	return a.resolve(cfg, config.Sources{Files: a.files, Environ: a.environ, Flags: typed(cmd)})
}

// resolve reads the sources into *cfg, which holds the defaults, and checks what comes of it.
func (a *app) resolve(cfg *config.Config, from config.Sources) (*config.Config, map[string]string, error) {
	origins, err := config.Load(cfg, from)
	if err == nil {
		err = config.Trace(cfg.Finish(), origins)
	}
	if err != nil {
		return nil, nil, &exitError{exitConfig, fmt.Errorf("configuration:\n%w", err)}
	}
	return cfg, origins, nil
}

// typed are the keys that the command line gives.
func typed(cmd *cobra.Command) map[string]string {
	flags := map[string]string{}
	keys := config.Keys(config.Default())
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(keys, f.Name) {
			flags[f.Name] = f.Value.String()
		}
		if entries, err := cmd.Flags().GetStringToString(f.Name); err == nil {
			for k, v := range entries {
				flags[f.Name+"."+k] = v
			}
		}
	})
	return flags
}

// session is one process of a run.
type session struct {
	*app
	cfg *config.Config
	// origins say where the values that somebody set came from; nil if that is not known.
	origins  map[string]string
	log      *slog.Logger
	registry *prometheus.Registry
	health   *telemetry.Health
	server   *telemetry.Server
}

// session loads the configuration and opens what every role has: logs, metrics and health. A command that names
// no parts to wait for is no role and serves nothing.
func (a *app) session(cmd *cobra.Command, parts ...string) (*session, error) {
	cfg, origins, err := a.load(cmd)
	if err != nil {
		return nil, err
	}
	s, err := a.sessionOf(cfg, parts...)
	if err != nil {
		return nil, err
	}
	s.origins = origins
	return s, nil
}

func (a *app) sessionOf(cfg *config.Config, parts ...string) (*session, error) {
	version, commit := build(debug.ReadBuildInfo())
	s := &session{
		app: a, cfg: cfg, registry: telemetry.NewRegistry(version, commit), health: telemetry.NewHealth(parts...),
	}
	if len(parts) == 0 {
		// It asks and ends: it must not take the port of the role beside it, and its answer is what it has to say.
		cfg.Telemetry.Listen = ""
		if cfg.Log.Level == "info" {
			cfg.Log.Level = "warn"
		}
		if cfg.Log.Format == "auto" {
			cfg.Log.Format = "text" // somebody reads it beside the answer, whatever it is written to
		}
	}
	s.log = telemetry.NewLogger(a.err, cfg.Log).With("run", cfg.Run.Name)
	var err error
	if s.server, err = telemetry.Listen(cfg.Telemetry, s.registry, s.health); err != nil {
		return nil, err
	}
	return s, nil
}
