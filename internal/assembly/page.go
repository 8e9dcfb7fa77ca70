package assembly

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/operate"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Viewer shows runs: this process's own run, and the runs of folders.
type Viewer struct {
	cfg     *config.Config
	origins map[string]string // of its settings; nil where they are not known
	parts   parts.Registry
	// files and environ are the sources that win over the configurations of folders.
	files, environ []string
	log            *slog.Logger
	health         *telemetry.Health
	models         *Models
}

// Viewer shows runs as this process is configured.
func (s *Run) Viewer() *Viewer {
	return &Viewer{
		cfg: s.Config, origins: s.Origins, parts: s.Parts, files: s.Files, environ: s.Environ, log: s.Log, health: s.health, models: s.Models(),
	}
}

// Runs are the runs that the arguments name, each a run in run.dir or a folder; without any, all in run.dir.
func (v *Viewer) Runs(args []string) ([]view.Run, error) {
	var folders []string
	for _, arg := range args {
		dir := arg
		if !runfolder.Is(dir) && runfolder.Is(filepath.Join(v.cfg.Run.Dir, arg)) {
			dir = filepath.Join(v.cfg.Run.Dir, arg)
		}
		if !runfolder.Is(dir) {
			return nil, fault.Usagef("%s: no run is there, nor in %s: want a run of %s or a run's folder", arg, filepath.Join(v.cfg.Run.Dir, arg), v.cfg.Run.Dir)
		}
		folders = append(folders, dir)
	}
	if len(args) == 0 {
		names, err := runfolder.List(v.cfg.Run.Dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			folders = append(folders, filepath.Join(v.cfg.Run.Dir, name))
		}
	}
	var runs []view.Run
	for _, dir := range folders {
		runs = append(runs, v.FolderRun(dir))
	}
	if own := v.cfg.Run.Name; len(args) == 0 && v.cfg.Broker.URL != "" && !slices.ContainsFunc(runs, func(r view.Run) bool { return r.Name == own }) {
		run := runfolder.Run{ // the folder may not be there yet, or never, where it is on another machine
			Name: own, Dir: v.cfg.Folder(), Checkpoints: v.cfg.Trainer.Checkpoint.Dir, Messages: KeptMessages(v.cfg),
			Connect: v.connectTo(own, ""),
		}
		runs = append(runs, view.Run{Run: run, Chat: newChatter(*v.models, v.viewerAsks(), v.ownConfig)})
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s holds no run: name folders of runs, another --run.dir, or a broker and a run by --broker.url and --run.name", v.cfg.Run.Dir)
	}
	return distinctNames(runs), nil
}

// More returns the runs in run.dir that are not shown yet: those that have begun since Runs was called.
func (v *Viewer) More(shown func(dir string) bool) []view.Run {
	names, err := runfolder.List(v.cfg.Run.Dir)
	if err != nil {
		return nil // the runs that are shown say what is wrong
	}
	var runs []view.Run
	for _, name := range names {
		if dir := filepath.Join(v.cfg.Run.Dir, name); !shown(dir) {
			runs = append(runs, v.FolderRun(dir))
		}
	}
	return runs
}

// FolderRun is the run of a folder, whose name is the run's.
func (v *Viewer) FolderRun(dir string) view.Run {
	r := view.Run{Run: v.runFolder(dir)}
	name, dir := r.Name, r.Dir
	chat := newChatter(*v.models, v.viewerAsks(), func() (*config.Config, error) {
		cfg, _, err := Resolve(v.parts, config.Sources{
			Written: filepath.Join(dir, ConfigFile), Files: v.files, Environ: v.environ, Flags: map[string]string{"run.name": name, "run.dir": filepath.Dir(dir)},
		})
		return cfg, err
	})
	chat.vouched = func(cfg *config.Config) error { return refuseStrangersSections(cfg, v.cfg) }
	r.Known, r.Chat = func() *operate.Known { return v.KnownOf(dir) }, chat
	if v.cfg.Broker.URL == "" { // else the run is looked for elsewhere than where its folder says
		r.Noted = func() string { return NotedBroker(dir) }
	}
	usual := config.Default(v.parts)
	if parent := filepath.Dir(dir); parent != usual.Run.Dir {
		r.Flags = "--run.dir " + parent
	}
	if name != usual.Run.Name {
		r.Flags = strings.TrimSpace("--run.name " + name + " " + r.Flags)
	}
	return r
}

// runFolder is the run of a folder, whose name is the run's.
func (v *Viewer) runFolder(dir string) runfolder.Run {
	dir = filepath.Clean(dir)
	if whole, err := filepath.Abs(dir); err == nil && (dir == "." || dir == "..") {
		dir = whole
	}
	name := filepath.Base(dir)
	r := runfolder.Run{Name: name, Dir: dir, Connect: v.connectTo(name, dir)}
	if written, _, err := config.Resolve(v.parts, config.Sources{Written: filepath.Join(dir, ConfigFile)}); err == nil {
		if written.Trainer.Checkpoint.Dir == "" { // beside it, wherever the folder is now
			written.Trainer.Checkpoint.Dir = filepath.Join(dir, runfolder.CheckpointsFolder)
		}
		r.Checkpoints, r.Messages = written.Trainer.Checkpoint.Dir, messagesOfFolder(written, v.cfg)
	}
	return r
}

// ReadTrajectory finds a trajectory of the configured run.
func (v *Viewer) ReadTrajectory(ctx context.Context, id string) (*schemas.Trajectory, error) {
	r := v.runFolder(v.cfg.Folder())
	r.Checkpoints, r.Messages = v.cfg.Trainer.Checkpoint.Dir, KeptMessages(v.cfg)
	folder := runfolder.Open(r)
	defer folder.Close()
	return folder.Trajectory(ctx, id)
}

// ownConfig is the process's own.
func (v *Viewer) ownConfig() (*config.Config, error) { return v.cfg, nil }

// viewerAsks says why a viewer's connection may not ask a run's engines; "" where it may.
func (v *Viewer) viewerAsks() string {
	if to := (Connector{v.cfg, v.log, v.health}); to.seedFile(streams.RoleViewer) == "" {
		return ""
	}
	return "the run's engines are not asked: this page looks with the viewer's key, which may not. The page of weir up or weir trainer asks them"
}

// distinctNames gives runs that share a name different names.
func distinctNames(runs []view.Run) []view.Run {
	seen := map[string]int{}
	for i := range runs {
		name := runs[i].Name
		if seen[name]++; seen[name] > 1 {
			runs[i].Name = fmt.Sprintf("%s (%d)", name, seen[name])
		}
	}
	return runs
}

// connectTo connects to the broker of a run: the configured broker, else the broker that the run's folder names. The streams of a broker
// that has ended are left alone: the run may want to start again.
func (v *Viewer) connectTo(name, dir string) func(context.Context) (*streams.Run, func(), error) {
	return func(ctx context.Context) (*streams.Run, func(), error) {
		cfg := *v.cfg
		to := Connector{&cfg, slog.New(slog.DiscardHandler), v.health} // the page shows the errors
		if dir != "" {
			if url := NotedBroker(dir); url != "" && cfg.Broker.URL == "" {
				cfg.Broker.URL = url
			}
		}
		if cfg.Broker.URL == "" {
			return nil, nil, noBrokerError(name, dir)
		}
		conn, err := to.connectBroker(ctx, nil, streams.RoleViewer)
		if err != nil {
			return nil, nil, err
		}
		run, err := conn.Attach(ctx, name)
		if err != nil {
			conn.Close()
			return nil, nil, err
		}
		return run, conn.Close, nil
	}
}

// servePage serves the page of this process's own run until ctx ends or the returned function is called, and notes where. An error of the
// page does not end the run: a run whose page has no port trains on without a page.
func (v *Viewer) servePage(ctx context.Context, run *streams.Run, note View) (stop func()) {
	r := v.FolderRun(v.cfg.Folder())
	r.Name, r.Checkpoints, r.Messages = v.cfg.Run.Name, v.cfg.Trainer.Checkpoint.Dir, KeptMessages(v.cfg)
	r.Connect = func(context.Context) (*streams.Run, func(), error) { return run, func() {}, nil }
	r.Chat = newChatter(*v.models, "", v.ownConfig)
	_, fixed := v.origins["view.listen"]
	server, err := view.Listen(v.cfg.View, view.Deps{Runs: []view.Run{r}, Log: v.log}, !fixed)
	if err != nil {
		v.log.Warn("the run has no page, and goes on", "listen", v.cfg.View.Listen, "err", err)
		note.Note(fmt.Sprintf("no page: %v. The run goes on; weir view shows it", err))
		return func() {}
	}
	if server.URL() != "" {
		note.Note("page: " + server.URL())
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Run(ctx); err != nil {
			v.log.Warn("the page is not served any more", "err", err)
		}
	}()
	return func() { cancel(); <-ended }
}

// KnownOf returns the facts of a run's folder that an operator's act is checked against; nil where the folder has none.
func (v *Viewer) KnownOf(dir string) *operate.Known {
	if _, err := os.Stat(filepath.Join(dir, ConfigFile)); err != nil {
		return nil
	}
	written, _, err := config.Resolve(v.parts, config.Sources{Written: filepath.Join(dir, ConfigFile)})
	if err != nil {
		return nil
	}
	longest, _ := written.Positions()
	return &operate.Known{Tasks: written.Active(), MaxTokens: int64(longest), MaxSegments: int64(written.Trainer.Limits.MaxSegments)}
}
