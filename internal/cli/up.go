package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

func (a *app) upCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "up", Short: "Run every role in this process: the whole training", Args: cobra.NoArgs,
		Long: `Up trains an agent from nothing, in one process, over the same streams as the roles use when they run apart. It shows
how the run goes, and ends with a report on questions that the policy has never been trained on. A run that was
stopped goes on where it was.`,
		Example: "  weir up\n  weir up --run.name mine --trainer.eta 0\n  weir up --run.name cispo --trainer.loss.name cispo",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.session(cmd, "run", "weights")
			if err != nil {
				return err
			}
			// A port that somebody chose is not changed for another.
			fixed := cmd.Flags().Changed("broker.listen") || s.cfg.Broker.Listen != a.reference().Broker.Listen
			return s.up(cmd.Context(), fixed)
		},
	}
	a.plainFlag(cmd)
	return cmd
}

// plainFlag gives a command that shows a run as it goes the flag --plain.
func (a *app) plainFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.plain, "plain", false, "a line a step, no live view; so do NO_COLOR and TERM=dumb")
}

// up runs the whole pipeline until the training is done or ctx ends.
func (s *session) up(ctx context.Context, fixedPort bool) (err error) {
	began := time.Now()
	r, err := s.openRun(ctx, fixedPort)
	if err != nil {
		return err
	}
	defer r.close()
	if s.live(s.err) { // elsewhere the log says it
		if err := s.printUnread(s.err); err != nil {
			return err
		}
	}

	view := s.newProgress(s.err)
	defer view.Close()
	view.Title(fmt.Sprintf("run %s: %s, %s", s.cfg.Run.Name, r.course.names(), r.dir))
	stopPage, err := s.servePage(ctx, r.run, func(url string) { view.Note("page: " + url) })
	if err != nil {
		return err
	}
	defer s.keepRecords(ctx)()
	failed := s.roles(ctx, r.run, r.course, view)
	stopPage()
	view.Close()
	if failed == nil && ctx.Err() == nil {
		failed = s.finalReport(ctx, r.run, r.course, r.dir, time.Since(began))
	}
	if stopped := context.Cause(ctx); stopped != nil {
		dir := s.cfg.Trainer.Checkpoint.Dir
		if steps, err := checkpoint.Steps(dir); err == nil && len(steps) == 0 {
			fmt.Fprintf(s.out, "stopped (%v) before version 0 was ready: nothing is kept yet, and the same command begins anew\n", stopped)
		} else {
			fmt.Fprintf(s.out, "stopped (%v); the same command goes on from %s\n", stopped, dir)
		}
		return interrupted(ctx, errSaid)
	}
	return failed
}

// localRun is a run whose roles are all in this process.
type localRun struct {
	dir    string // its folder
	course *course
	run    *streams.Run
	close  func()
}

// openRun makes a run ready for its roles: the folder, the log in it, the tasks and the broker. A run that was begun otherwise
// is refused.
func (s *session) openRun(ctx context.Context, fixedPort bool) (r *localRun, err error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	closeLog, err := s.logToFile(filepath.Join(dir, "weir.log"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeLog()
		}
	}()
	if err := s.sameRun(); err != nil {
		return nil, err
	}
	c, err := s.openCourse(ctx, s.cfg, s.log)
	if err != nil {
		return nil, err
	}
	if err := s.fits(c, streams.RoleTrainer, streams.RoleInference); err != nil {
		return nil, err
	}
	conn, run, stop, err := s.ownBroker(ctx, dir, fixedPort)
	if err != nil {
		return nil, err
	}
	return &localRun{dir: dir, course: c, run: run, close: func() {
		_ = errors.Join(c.spaces.Close(), c.apart.Close()) // what they cannot end ends with this process
		conn.Close()
		stop()
		closeLog()
	}}, nil
}

// trainRun does all that up does but the report: it opens a run and trains to its end, with a view of its own.
func (s *session) trainRun(ctx context.Context, title string, after func(r *localRun) error) error {
	r, err := s.openRun(ctx, true)
	if err != nil {
		return err
	}
	defer r.close()
	view := s.newProgress(s.err)
	view.Title(title)
	err = s.roles(ctx, r.run, r.course, view)
	view.Close()
	if err = errors.Join(err, context.Cause(ctx)); err == nil && after != nil {
		err = after(r)
	}
	return err
}

// roles runs every role but the broker until the training is done.
func (s *session) roles(ctx context.Context, run *streams.Run, c *course, view *report.Progress) error {
	group, running := errgroup.WithContext(ctx)
	// They end in this order: training, then the rollouts that are left, then what they sample from.
	producing, stopProducing := context.WithCancel(running)
	defer stopProducing()
	sampling, stopSampling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSampling()
	group.Go(func() error { return s.server.Run(sampling, s.log) })
	group.Go(func() error { return unlessOver(sampling, s.infer(sampling, run, c)) })
	if s.cfg.OnWorkers() {
		defer s.callWorkers(producing, run, c)()
		group.Go(func() error { return unlessOver(sampling, s.serveSessions(sampling, run, c)) })
	}
	group.Go(func() error {
		defer stopSampling()
		return unlessOver(producing, s.produce(producing, run, c))
	})
	group.Go(func() error {
		defer stopProducing()
		return s.train(running, run, c, view)
	})
	return group.Wait()
}

// unlessOver forgets the error of a role that was told to stop.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// ownBroker starts the embedded broker, or connects to the configured one, and opens the run.
func (s *session) ownBroker(ctx context.Context, dir string, fixedPort bool) (*streams.Conn, *streams.Run, func(), error) {
	var own *broker.Broker
	stop, note := func() {}, filepath.Join(dir, brokerFile)
	if s.cfg.Broker.URL == "" {
		b, err := s.startBroker(ctx)
		if errors.Is(err, syscall.EADDRINUSE) && !fixedPort {
			// Another broker has the usual port. This run's own is found through its folder.
			s.cfg.Broker.Listen = "127.0.0.1:0"
			b, err = s.startBroker(ctx)
		}
		if err != nil {
			return nil, nil, nil, err
		}
		own, stop = b, func() {
			_ = os.Remove(note) // a stale one is passed over
			b.Shutdown()
		}
	}
	conn, err := s.connect(ctx, own, streams.RoleAdmin)
	if err != nil {
		stop()
		return nil, nil, nil, err
	}
	run, err := s.open(ctx, conn)
	if err == nil && own != nil {
		err = admit(own, note)
	}
	if err != nil {
		conn.Close()
		stop()
		return nil, nil, nil, err
	}
	return conn, run, stop, nil
}

// admit lets clients in at a broker whose streams are made, and notes where it is.
func admit(own *broker.Broker, note string) error {
	if err := own.Admit(); err != nil {
		return err
	}
	if err := os.WriteFile(note, []byte(own.URL()+"\n"), 0o644); err != nil {
		return fmt.Errorf("note where the broker is: %w", err)
	}
	return nil
}

// brokerFile is where a run's folder says how to reach its broker.
const brokerFile = "broker.url"

// runBroker is the broker of a run on this machine, "" if its folder does not say.
func runBroker(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, brokerFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// logToFile sends the log to a file, so that the progress view has the terminal to itself. What needs somebody
// to look still goes to the terminal where there is no live view.
func (s *session) logToFile(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w; name another place with --run.dir", err)
	}
	file := telemetry.NewLogger(f, telemetry.LogConfig{Level: s.cfg.Log.Level, Format: "json"})
	handlers := []slog.Handler{file.Handler()}
	if !s.live(s.err) {
		loud := s.cfg.Log
		if loud.Level == "info" {
			loud.Level = "warn"
		}
		handlers = append(handlers, telemetry.NewLogger(s.err, loud).Handler())
	}
	s.log = slog.New(slog.NewMultiHandler(handlers...)).With("run", s.cfg.Run.Name)
	return func() { _ = f.Close() }, nil // nothing is left to write
}

// newProgress shows a run as it goes on w, live where that is a terminal.
func (s *session) newProgress(w io.Writer) *report.Progress {
	view := report.NewProgress(w, s.live(w), s.cfg.Trainer.Steps, s.cfg.Trainer.Eta, time.Now)
	view.Width = func() int { return columns(w) }
	view.Colour = coloured(w, s.environ)
	return view
}

// columns is the width of a terminal, 0 if w is none.
func columns(w any) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// live says whether a stream shows a view that is drawn over: a terminal that can, unless somebody asks for plain lines.
func (a *app) live(w any) bool {
	return isTerminal(w) && !a.plain && variable(a.environ, "TERM") != "dumb" && variable(a.environ, "NO_COLOR") == ""
}

// coloured says whether a stream shows colours: a terminal, unless NO_COLOR has a value (no-color.org) or the terminal has none.
func coloured(w any, environ []string) bool {
	return isTerminal(w) && variable(environ, "TERM") != "dumb" && variable(environ, "NO_COLOR") == ""
}

// variable is the value of an environment's variable, "" where it has none. The last of several counts, as in a process.
func variable(environ []string, name string) (value string) {
	for _, v := range environ {
		if key, text, ok := strings.Cut(v, "="); ok && key == name {
			value = text
		}
	}
	return value
}
