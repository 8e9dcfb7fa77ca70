package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// LocalRun is a run whose roles are all in this process.
type LocalRun struct {
	*Run
	Dir    string // its folder
	Course *Course
	run    *streams.Run
	// closers end what is open, the last first.
	closers []func()
}

// Close ends what the run has opened.
func (r *LocalRun) Close() {
	for _, end := range slices.Backward(r.closers) {
		end()
	}
	r.closers = nil
}

// OpenLocal makes a run ready for its roles: the folder, the log in it, the tasks and the broker. A run that was begun otherwise
// is refused.
func (s *Run) OpenLocal(ctx context.Context, fixedPort bool) (*LocalRun, error) {
	r := &LocalRun{Run: s}
	if err := r.openParts(ctx, fixedPort); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *LocalRun) openParts(ctx context.Context, fixedPort bool) (err error) {
	if r.Dir, err = r.makeFolder(); err != nil {
		return err
	}
	closeLog, err := r.logToFile(filepath.Join(r.Dir, "weir.log"))
	if err != nil {
		return err
	}
	r.closers = append(r.closers, closeLog)
	if err := r.sameRun(); err != nil {
		return err
	}
	if r.Course, err = r.openCourse(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = r.Course.Close() // what it cannot end ends with this process
		}
	}()
	if err := r.checkMemory(r.Course, streams.RoleTrainer, streams.RoleInference); err != nil {
		return err
	}
	conn, run, stop, err := r.ownBroker(ctx, r.Dir, fixedPort)
	if err != nil {
		return err
	}
	r.run = run
	r.closers = append(r.closers, stop, conn.Close, func() { _ = r.Course.Close() })
	return nil
}

// Train runs every role but the broker until the training is done, with the page and the records of the run beside them. The
// records go on until the run is closed.
func (r *LocalRun) Train(ctx context.Context, view View) error {
	defer r.servePage(ctx, r.run, view)()
	r.closers = append(r.closers, r.keepRecords(ctx))
	return r.runRoles(ctx, r.run, r.Course, view)
}

// runRoles runs every role but the broker until the training is done.
func (s *Run) runRoles(ctx context.Context, run *streams.Run, c *Course, view View) error {
	group, running := errgroup.WithContext(ctx)
	// They end in this order: training, then the rollouts that are left, then what they sample from.
	producing, stopProducing := context.WithCancel(running)
	defer stopProducing()
	sampling, stopSampling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSampling()
	group.Go(func() error { return s.server.Run(sampling, s.Log) })
	group.Go(func() error { return unlessOver(sampling, s.serveInference(sampling, run, c)) })
	if s.Config.OnWorkers() {
		defer s.callWorkers(producing, run, c)()
		group.Go(func() error { return unlessOver(sampling, s.serveSessions(sampling, run, c)) })
	}
	group.Go(func() error {
		defer stopSampling()
		return unlessOver(producing, s.produceRollouts(producing, run, c))
	})
	group.Go(func() error {
		defer stopProducing()
		return s.trainPolicy(running, run, c, view)
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
func (s *Run) ownBroker(ctx context.Context, dir string, fixedPort bool) (*streams.Conn, *streams.Run, func(), error) {
	var own *broker.Broker
	stop, note := func() {}, filepath.Join(dir, brokerFile)
	if s.Config.Broker.URL == "" {
		b, err := s.startBroker(ctx)
		if errors.Is(err, syscall.EADDRINUSE) && !fixedPort {
			// Another broker has the usual port. This run's own is found through its folder.
			s.Config.Broker.Listen = "127.0.0.1:0"
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
	conn, err := s.connectBroker(ctx, own, streams.RoleAdmin)
	if err != nil {
		stop()
		return nil, nil, nil, err
	}
	run, err := s.openStreams(ctx, conn)
	if err == nil && own != nil {
		err = admitClients(own, note)
	}
	if err != nil {
		conn.Close()
		stop()
		return nil, nil, nil, err
	}
	return conn, run, stop, nil
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

// NotedBroker is the broker of a run on this machine, "" if its folder does not say.
func NotedBroker(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, brokerFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// logToFile sends the log to a file, and what is beside it.
func (s *Run) logToFile(path string) (func(), error) {
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
