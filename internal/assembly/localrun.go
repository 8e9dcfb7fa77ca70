package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// LocalRun is a run whose roles are all in this process.
type LocalRun struct {
	Dir    string // its folder
	Course *Course

	process *Run // whose configuration and log are this run's
	run     *streams.Run
	// closers close the open resources, the last first.
	closers []func()
}

// Close closes everything that the run has opened.
func (r *LocalRun) Close() {
	for _, end := range slices.Backward(r.closers) {
		end()
	}
	r.closers = nil
}

// OpenLocal makes a run ready for its roles: the folder, the log in it, the tasks and the broker. A run that was begun otherwise
// is refused.
func (s *Run) OpenLocal(ctx context.Context, fixedPort bool) (*LocalRun, error) {
	r := &LocalRun{process: s}
	if err := r.openParts(ctx, fixedPort); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *LocalRun) openParts(ctx context.Context, fixedPort bool) (err error) {
	s := r.process
	if r.Dir, err = makeRunFolder(s.Config); err != nil {
		return err
	}
	closeLog, err := r.logToFile(filepath.Join(r.Dir, "weir.log"))
	if err != nil {
		return err
	}
	r.closers = append(r.closers, closeLog)
	if err := s.resumption().checkSame(); err != nil {
		return err
	}
	if r.Course, err = s.openCourse(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = r.Course.Close() // sandboxes that do not close end with this process
		}
	}()
	roles := []streams.Role{streams.RoleTrainer}
	if r.Course.recording == nil {
		roles = append(roles, streams.RoleInference)
	}
	if err := s.checkMemory(r.Course, roles...); err != nil {
		return err
	}
	if err := tryTasks(ctx, s.Config, r.Course, s.Log); err != nil {
		return err
	}
	conn, stop, err := r.openBroker(ctx, fixedPort)
	if err != nil {
		return err
	}
	r.closers = append(r.closers, stop, conn.Close, func() { _ = r.Course.Close() })
	return nil
}

// Train runs every role but the broker until the training is done, with the page and the records of the run beside them. The
// records go on until the run is closed.
func (r *LocalRun) Train(ctx context.Context, view View) error {
	defer r.process.Viewer().servePage(ctx, r.run, view)()
	r.closers = append(r.closers, keepRecords(ctx, r.process.Config, r.process.Log))
	return r.runRoles(ctx, view)
}

// runRoles runs every role but the broker until the training is done.
func (r *LocalRun) runRoles(ctx context.Context, view View) error {
	s, run, c := r.process, r.run, r.Course
	group, running := errgroup.WithContext(ctx)
	// They end in this order: training, then the rollouts that are left, then the samplers.
	producing, stopProducing := context.WithCancel(running)
	defer stopProducing()
	sampling, stopSampling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSampling()
	group.Go(func() error { return s.server.Run(sampling, s.Log) })
	if c.recording == nil { // else nothing samples
		group.Go(func() error {
			return unlessOver(sampling, newInferenceRole(s.newProcess(), run, c).serveInference(sampling))
		})
	}
	if s.Config.OnWorkers() {
		defer callWorkers(producing, s.Config, run, c)()
		group.Go(func() error {
			return unlessOver(sampling, newToolsRole(s.newProcess(), run, c).serveSessions(sampling))
		})
	}
	if s.Config.Trainer.Archive.Messages.ByRole() {
		group.Go(func() error {
			return unlessOver(sampling, newArchiveRole(s.newProcess(), run).keepMessages(sampling))
		})
	}
	group.Go(func() error {
		defer stopSampling()
		return unlessOver(producing, s.runProducers(producing, run, c))
	})
	group.Go(func() error {
		defer stopProducing()
		return s.newTrainerRole(run, c, view).trainPolicy(running)
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

// openBroker starts the embedded broker, or connects to the configured broker, and opens the run. stop ends the broker.
func (r *LocalRun) openBroker(ctx context.Context, fixedPort bool) (conn *streams.Conn, stop func(), err error) {
	s := r.process
	p := s.newProcess()
	var own *broker.Broker
	stop, note := func() {}, filepath.Join(r.Dir, brokerFile)
	if s.Config.Broker.URL == "" {
		b, err := p.startBroker(ctx)
		if errors.Is(err, syscall.EADDRINUSE) && !fixedPort {
			// Another broker has the usual port. This run's own is found through its folder.
			s.Config.Broker.Listen = "127.0.0.1:0"
			b, err = p.startBroker(ctx)
		}
		if err != nil {
			return nil, nil, err
		}
		own, stop = b, func() {
			_ = os.Remove(note) // a stale file is passed over
			b.Shutdown()
		}
	}
	to := s.Connector()
	conn, err = to.connectBroker(ctx, own, streams.RoleAdmin)
	if err != nil {
		stop()
		return nil, nil, err
	}
	r.run, err = to.openStreams(ctx, conn)
	if err == nil && own != nil {
		err = admitClients(own, note)
	}
	if err != nil {
		conn.Close()
		stop()
		return nil, nil, err
	}
	return conn, stop, nil
}

// admitClients lets clients in at a broker whose streams are made, and notes where it is.
func admitClients(own *broker.Broker, note string) error {
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

// logToFile sends the log to a file, and to Beside.
func (r *LocalRun) logToFile(path string) (func(), error) {
	s := r.process
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w; name another place with --run.dir", err)
	}
	file := telemetry.NewLogger(f, telemetry.LogConfig{Level: s.Config.Log.Level, Format: "json"})
	handlers := []slog.Handler{file.Handler()}
	if s.Beside != nil {
		handlers = append(handlers, s.Beside)
	}
	s.Log = slog.New(slog.NewMultiHandler(handlers...)).With("run", s.Config.Run.Name)
	return func() { _ = f.Close() }, nil // nothing is left to write
}
