package chaos

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Archive says how the run keeps the messages of its stream. Its zero value is that it does not.
type Archive struct {
	// Folder has the segments, "" for none. ByRole is whether a role of its own writes them, Required whether no step may train on a message
	// that is not kept.
	Folder           string
	ByRole, Required bool
}

// ArchiveOf is the archive of a run as it is configured. Messages in a bucket are not looked at.
func ArchiveOf(cfg *config.Config) Archive {
	kept := cfg.Trainer.Archive
	out := Archive{ByRole: kept.Messages.ByRole(), Required: kept.Required}
	if kept.Messages.Bytes > 0 && !kept.Messages.InBucket() {
		out.Folder = kept.MessagesFolder(cfg.Trainer.Checkpoint.Dir).Dir
	}
	return out
}

// hasRole is whether a process of a run in a mode keeps its messages.
func (a Archive) hasRole(mode string) bool { return a.ByRole && mode == ModeProcesses }

// ArchiveReport is how the archive of a run came through.
type ArchiveReport struct {
	// Messages counts the kept messages.
	Messages int `json:"messages"`
	// Damage lists what weir audit --verify would name. Unkept lists the messages that were trained on and are not kept.
	Damage []string `json:"damage"`
	Unkept []string `json:"unkept"`
	// Required is Archive.Required: then there may be no unkept message.
	Required bool `json:"required"`
}

// place is a message of a stream between two losses.
type place struct {
	created  int64
	losses   int64
	sequence uint64
}

func placeOf(created time.Time, losses int64, sequence uint64) place {
	return place{created.UnixNano(), losses, sequence}
}

// judgeArchive compares the archive with the record of steps.
func (h *experiment) judgeArchive() error {
	if h.cfg.Archive.Folder == "" {
		return nil
	}
	folder := messages.Folder{Dir: h.cfg.Archive.Folder}
	report := &ArchiveReport{Required: h.cfg.Archive.Required}
	h.report.Archive = report
	verified, err := messages.Verify(folder)
	if err != nil {
		return err
	}
	for _, d := range verified.Damage {
		report.Damage = append(report.Damage, d.Error())
	}
	kept := map[place]bool{}
	for m, err := range messages.All(folder) {
		if errors.As(err, new(*messages.Damage)) {
			continue // it is among the damage
		}
		if err != nil {
			return err
		}
		at := placeOf(m.Created, m.Losses, m.Sequence)
		if kept[at] {
			report.Damage = append(report.Damage, fmt.Sprintf("message %d is kept twice", m.Sequence))
		}
		kept[at] = true
	}
	report.Messages = len(kept)
	for r, err := range checkpoint.Records(h.cfg.Checkpoints) {
		if r == nil {
			h.printLine("not compared with the archive: %v", err)
			continue
		}
		if r.Use > 1 {
			continue // the first use is compared
		}
		for _, g := range r.Groups {
			for _, m := range g.Used() {
				if !kept[placeOf(r.Created, r.Losses, m.Sequence)] {
					report.Unkept = append(report.Unkept, fmt.Sprintf("%s, sequence %d, in step %d", m.ID, m.Sequence, r.Step))
				}
			}
		}
	}
	return nil
}

// Err is nil when nothing is damaged, and nothing unkept was trained on where that is required.
func (r *ArchiveReport) Err() error {
	if r == nil {
		return nil
	}
	var errs []error
	if n := len(r.Damage); n > 0 {
		errs = append(errs, fmt.Errorf("%d faults of the archive", n))
	}
	if n := len(r.Unkept); n > 0 && r.Required {
		errs = append(errs, fmt.Errorf("%d messages were trained on that are not kept", n))
	}
	return errors.Join(errs...)
}
