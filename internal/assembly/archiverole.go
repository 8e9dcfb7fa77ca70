package assembly

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/archive/archiver"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// Archive is the archive's role as a process of its own.
func (s *Run) Archive(ctx context.Context) error {
	return s.runRole(ctx, role{
		name: streams.RoleArchive, waits: archivePart, reach: (*Connector).attachStreams, bare: true,
		work: func(ctx context.Context, run *streams.Run, _ *Course) error {
			return newArchiveRole(s.newProcess(), run).keepMessages(ctx)
		},
		allowed: func() error {
			switch kept := s.Config.Trainer.Archive.Messages; {
			case kept.Bytes == 0:
				return config.Invalid(errors.New("trainer.archive.messages.bytes is 0: nothing is kept; set it, the same for every role"))
			case !kept.ByRole():
				return config.Invalid(fmt.Errorf("trainer.archive.messages.by is %s: set it to role, the same for every role", kept.By))
			}
			return nil
		},
	})
}

// archivePart is the part of the role that waits until it has the run's archive.
const archivePart = "archive"

// archiveRole is the archive at work.
type archiveRole struct {
	process
	run  *streams.Run
	name string
}

// newArchiveRole makes the role of a run that is open.
func newArchiveRole(p process, run *streams.Run) *archiveRole {
	return &archiveRole{process: p, run: run, name: streams.WorkerName("archive")}
}

// keepMessages keeps the messages that the run's trainer asks for until ctx ends.
func (p *archiveRole) keepMessages(ctx context.Context) (err error) {
	metrics, err := archiver.NewMetrics(p.registry)
	if err != nil {
		return err
	}
	folder := p.cfg.Trainer.Archive.MessagesFolder(p.cfg.Trainer.Checkpoint.Dir)
	unlock, err := folder.Lock()
	if err != nil {
		return fmt.Errorf("%w: stop it, or name another folder with trainer.archive.messages.dir", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	store := messages.Store(folder)
	if p.cfg.Trainer.Archive.Messages.InBucket() {
		spool, err := p.openSpool(func(bytes int64) { metrics.SetWaiting(bytes) }, func(err error) { metrics.CountSent(err) })
		if err != nil {
			return err
		}
		defer func() { _ = spool.Close() }() // it logs the rest
		if err := spool.SendOwn(); err != nil {
			return err
		}
		store = spool
	}
	defer p.watchWork(ctx, p.archiveWork())()
	defer p.keepPresence(ctx, p.run, "archive", p.name)()
	p.log.Info("keeping messages", "worker", p.name, "folder", folder.Dir)
	return archiver.Run(ctx, p.cfg.Trainer.Archive.Messages, archiver.Deps{
		Stream: p.run, Store: store, Log: p.log, Metrics: metrics, Ready: func(err error) { p.health.Set(archivePart, err) },
	})
}

// archiveWork waits while the trainer waits for messages to be kept.
func (p *archiveRole) archiveWork() telemetry.Work {
	return telemetry.Work{
		Part: "archive",
		Done: func() float64 { return telemetry.Counted(p.registry, "weir_archive_sequences_total") },
		Waits: func(ctx context.Context) string {
			return atBroker(ctx, p.run, func(ctx context.Context) (string, error) {
				asked, kept, err := p.run.KeepState(ctx)
				if err != nil || asked == nil {
					return "", err
				}
				if now := kept.UpTo(asked); now < asked.Sequence {
					return fmt.Sprintf("the trainer asked for messages up to %d, and %d are kept", asked.Sequence, now), nil
				}
				return "", nil
			})
		},
	}
}
