package assembly

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/telemetry"
)

// Run is a process of a run, from which its roles are assembled.
type Run struct {
	Options
	Config *config.Config
	// Origins say where the values that somebody set came from; nil where that is not known.
	Origins  map[string]string
	registry *prometheus.Registry
	health   *telemetry.Health
	server   *telemetry.Server
}

// Options are the settings of a process beside its configuration.
type Options struct {
	// Parts are the parts that a configuration can name.
	Parts parts.Registry
	// Memory is the memory that the process may use; its zero value bounds nothing.
	Memory machine.Memory
	// Files and Environ are the sources that win over the configurations of other runs' folders.
	Files, Environ []string
	// Log takes the roles' log, Notes takes lines that people should read at once, and Answers takes the line of a role that has nothing to
	// do.
	Log            *slog.Logger
	Notes, Answers io.Writer
	// Beside takes the log of a run whose log is a file too; nil for nobody.
	Beside slog.Handler
	// Version and commit name the build.
	Version, Commit string
}

// process holds the resources that every role of this process shares.
type process struct {
	cfg      *config.Config
	log      *slog.Logger
	registry *prometheus.Registry
	health   *telemetry.Health
	build    runfolder.Build
}

// newProcess returns the shared resources of this process's roles.
func (s *Run) newProcess() process {
	return process{cfg: s.Config, log: s.Log, registry: s.registry, health: s.health, build: runfolder.Build{Version: s.Version, Commit: s.Commit}}
}

// New makes the process of a run as it is configured, and listens where its metrics and its health are asked for. It is
// not ready before each of the parts is.
func New(cfg *config.Config, o Options, parts ...string) (*Run, error) {
	s := &Run{
		Options: o, Config: cfg, registry: telemetry.NewRegistry(o.Version, o.Commit), health: telemetry.NewHealth(parts...),
	}
	s.Log = o.Log.With("run", cfg.Run.Name)
	var err error
	if s.server, err = telemetry.Listen(cfg.Telemetry, s.registry, s.health); err != nil {
		return nil, err
	}
	return s, nil
}

// Resolve reads the sources over the defaults and checks the result.
func Resolve(doors parts.Registry, from config.Sources) (*config.Config, map[string]string, error) {
	cfg, origins, err := config.Resolve(doors, from)
	if err == nil {
		err = config.Trace(cfg.Finish(), origins)
	}
	if err != nil {
		return nil, nil, config.Invalid(fmt.Errorf("configuration:\n%w", err))
	}
	return cfg, origins, nil
}
