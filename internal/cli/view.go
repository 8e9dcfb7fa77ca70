package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/operate"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

func (a *app) viewCommand() *cobra.Command {
	return &cobra.Command{
		Use: "view [run or folder]...", Short: "Look at runs on a web page: live, finished, several at once",
		Long: `View serves a page about runs: how each goes and what holds it back, where every ticket went, and any trajectory down
to its tokens. It reads the runs' folders, and their brokers where those are up, so it works on a run that goes on, on
one that is over, and on one that was killed. Without arguments it shows every run in run.dir, and the run that
run.name names. weir up and weir trainer serve the page of their own run by themselves.

The page is served on view.listen. Beyond loopback it asks for the token that is printed, or that view.token_file
holds; on loopback only what changes something, or opens tasks and tools, does.`,
		Example: "  weir view\n  weir view demo other\n  weir view runs/demo /mnt/old/runs/demo\n  weir view --broker.url nats://broker:4222 --run.name mine",
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.session(cmd)
			if err != nil {
				return err
			}
			runs, err := s.viewed(args)
			if err != nil {
				return err
			}
			_, fixed := s.origins["view.listen"]
			server, err := view.Listen(s.cfg.View, view.Deps{Runs: runs, Log: s.log}, !fixed)
			if err != nil {
				return err
			}
			if server.URL() == "" {
				return fault.Usage(errors.New("view.listen is empty: name an address, such as 127.0.0.1:8686"))
			}
			var names []string
			for _, r := range runs {
				names = append(names, r.Name)
			}
			fmt.Fprintf(a.out, "%s on %s\n", strings.Join(names, ", "), server.URL())
			return server.Run(cmd.Context())
		},
	}
}

// viewed are the runs that the arguments name, each a run in run.dir or a folder; without any, all in run.dir.
func (s *session) viewed(args []string) ([]view.Run, error) {
	var folders []string
	for _, arg := range args {
		dir := arg
		if !runfolder.Is(dir) && runfolder.Is(filepath.Join(s.cfg.Run.Dir, arg)) {
			dir = filepath.Join(s.cfg.Run.Dir, arg)
		}
		if !runfolder.Is(dir) {
			return nil, fault.Usagef("%s: no run is there, nor in %s: want a run of %s or a run's folder", arg, filepath.Join(s.cfg.Run.Dir, arg), s.cfg.Run.Dir)
		}
		folders = append(folders, dir)
	}
	if len(args) == 0 {
		entries, err := os.ReadDir(s.cfg.Run.Dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for runs: %w", err)
		}
		for _, e := range entries {
			if dir := filepath.Join(s.cfg.Run.Dir, e.Name()); runfolder.Is(dir) {
				folders = append(folders, dir)
			}
		}
	}
	var runs []view.Run
	for _, dir := range folders {
		runs = append(runs, s.viewedFolder(dir))
	}
	if own := s.cfg.Run.Name; len(args) == 0 && s.cfg.Broker.URL != "" && !slices.ContainsFunc(runs, func(r view.Run) bool { return r.Name == own }) {
		runs = append(runs, view.Run{Run: runfolder.Run{Name: own, Connect: s.reach(own, "")}, Chat: s.newChatter(s.viewerAsks(), s.configuration)})
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s holds no run: name folders of runs, another --run.dir, or a broker and a run by --broker.url and --run.name", s.cfg.Run.Dir)
	}
	return distinct(runs), nil
}

// viewedFolder is the run of a folder, whose name is the run's.
func (s *session) viewedFolder(dir string) view.Run {
	r := view.Run{Run: s.runFolder(dir)}
	name, dir := r.Name, r.Dir
	chat := s.newChatter(s.viewerAsks(), func() (*config.Config, error) {
		cfg, _, err := s.resolve(config.Sources{
			Written: filepath.Join(dir, configFile), Files: s.files, Environ: s.environ, Flags: map[string]string{"run.name": name, "run.dir": filepath.Dir(dir)},
		})
		return cfg, err
	})
	chat.vouched = func(cfg *config.Config) error { return refuseStrangersSections(cfg, s.cfg) }
	r.Known, r.Chat = func() *operate.Known { return s.known(dir) }, chat
	if s.cfg.Broker.URL == "" { // else the run is looked for elsewhere than where its folder says
		r.Noted = func() string { return runBroker(dir) }
	}
	if parent := filepath.Dir(dir); parent != s.reference().Run.Dir {
		r.Flags = "--run.dir " + parent
	}
	if name != s.reference().Run.Name {
		r.Flags = strings.TrimSpace("--run.name " + name + " " + r.Flags)
	}
	return r
}

// runFolder is the run of a folder, whose name is the run's.
func (s *session) runFolder(dir string) runfolder.Run {
	dir = filepath.Clean(dir)
	if whole, err := filepath.Abs(dir); err == nil && (dir == "." || dir == "..") {
		dir = whole
	}
	name := filepath.Base(dir)
	r := runfolder.Run{Name: name, Dir: dir, Connect: s.reach(name, dir)}
	if written, _, err := config.Resolve(s.doors, config.Sources{Written: filepath.Join(dir, configFile)}); err == nil {
		r.Checkpoints = written.Trainer.Checkpoint.Dir
	}
	return r
}

// readTrajectory finds a trajectory of the configured run.
func (s *session) readTrajectory(ctx context.Context, id string) (*schemas.Trajectory, error) {
	r := s.runFolder(s.cfg.Folder())
	r.Checkpoints = s.cfg.Trainer.Checkpoint.Dir
	folder := runfolder.Open(r)
	defer folder.Close()
	return folder.Trajectory(ctx, id)
}

// configuration is the process's own.
func (s *session) configuration() (*config.Config, error) { return s.cfg, nil }

// viewerAsks says why a viewer's connection may not ask a run's engines; "" where it may.
func (s *session) viewerAsks() string {
	if s.seedFile(streams.RoleViewer) == "" {
		return ""
	}
	return "the run's engines are not asked: this page looks with the viewer's key, which may not. The page of weir up or weir trainer asks them"
}

// distinct gives runs of one name other names, by the folders above them.
func distinct(runs []view.Run) []view.Run {
	seen := map[string]int{}
	for i := range runs {
		name := runs[i].Name
		if seen[name]++; seen[name] > 1 {
			runs[i].Name = fmt.Sprintf("%s (%d)", name, seen[name])
		}
	}
	return runs
}

// reach connects to the broker of a run: the configured one, else the one that the run's folder names. The streams of a broker
// that has ended are left alone: the run may want to start again.
func (s *session) reach(name, dir string) func(context.Context) (*streams.Run, func(), error) {
	return func(ctx context.Context) (*streams.Run, func(), error) {
		own := *s
		cfg := *s.cfg
		own.cfg, own.log = &cfg, slog.New(slog.DiscardHandler) // the page tells what it meets
		if dir != "" {
			if url := runBroker(dir); url != "" && cfg.Broker.URL == "" {
				cfg.Broker.URL = url
			}
		}
		if cfg.Broker.URL == "" {
			return nil, nil, fmt.Errorf("run %s: no broker is up", name)
		}
		conn, err := own.connect(ctx, nil, streams.RoleViewer)
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

// servePage serves the page of this process's own run until ctx ends, and tells where. What goes wrong with it does not end the
// run.
func (s *session) servePage(ctx context.Context, run *streams.Run, tell func(string)) (stop func(), err error) {
	r := s.viewedFolder(s.cfg.Folder())
	r.Name, r.Checkpoints = s.cfg.Run.Name, s.cfg.Trainer.Checkpoint.Dir
	r.Connect = func(context.Context) (*streams.Run, func(), error) { return run, func() {}, nil }
	r.Chat = s.newChatter("", s.configuration)
	_, fixed := s.origins["view.listen"]
	server, err := view.Listen(s.cfg.View, view.Deps{Runs: []view.Run{r}, Log: s.log}, !fixed)
	if err != nil {
		return nil, err
	}
	if server.URL() != "" {
		tell(server.URL())
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Run(ctx); err != nil {
			s.log.Warn("the page is not served any more", "err", err)
		}
	}()
	return func() { cancel(); <-ended }, nil
}
