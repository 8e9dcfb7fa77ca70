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

// Run is one process of a run: what its roles are assembled from.
type Run struct {
	Options
	Config *config.Config
	// Origins say where the values that somebody set came from; nil where that is not known.
	Origins  map[string]string
	registry *prometheus.Registry
	health   *telemetry.Health
	server   *telemetry.Server
}

// Options are what a process has beside its configuration.
type Options struct {
	// Parts are the parts that a configuration can name.
	Parts parts.Registry
	// Memory is what the process may have; its zero value bounds nothing.
	Memory machine.Memory
	// Files and environ are what the configurations of other runs' folders are read over.
	Files, Environ []string
	// Log takes what the roles log, notes what people should read at once, and answers what a role has to say when it has nothing to do.
	Log            *slog.Logger
	Notes, Answers io.Writer
	// Beside takes what a run logs whose log is a file; nil for nobody.
	Beside slog.Handler
	// Version and commit name the build.
	Version, Commit string
}

// process is what a role of this process has beside its own parts.
type process struct {
	cfg      *config.Config
	log      *slog.Logger
	registry *prometheus.Registry
	health   *telemetry.Health
	build    runfolder.Build
}

// newProcess returns what a role of this process is made of.
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

// Resolve reads the sources over the defaults and checks what comes of it.
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
