package assembly

import (
	"errors"
	"fmt"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/doctor"
	"github.com/weir-rl/weir/trainer"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/archive/messages/bucket"
)

// KeptMessages are the messages of the stream that a run keeps, for readers: in a folder, or in a bucket with a spool before it.
func KeptMessages(cfg *config.Config) messages.Segments {
	kept := cfg.Trainer.Archive
	folder := kept.MessagesFolder(cfg.Trainer.Checkpoint.Dir)
	if !kept.Messages.InBucket() {
		return folder
	}
	there, err := bucket.Open(kept.Messages, cfg.Run.Name)
	if err != nil {
		return unreadable{err}
	}
	return messages.Spooled{Folder: folder, Remote: there}
}

// messagesOfFolder are KeptMessages of a configuration that was found in a run's folder, which may be somebody else's: requests with this
// machine's credentials go to Amazon, or to the endpoint of the reader's own configuration.
func messagesOfFolder(found, own *config.Config) messages.Segments {
	kept := found.Trainer.Archive.Messages
	if at := kept.S3.Endpoint; kept.InBucket() && at != "" && at != own.Trainer.Archive.Messages.S3.Endpoint {
		return unreadable{fmt.Errorf("the bucket %s at %s is not asked: the folder may be somebody else's; where you trust it, give "+
			"--trainer.archive.messages.s3.endpoint %[2]s as your own", kept.Dir, at)}
	}
	return KeptMessages(found)
}

// ExamineBucket lists, writes and removes in the bucket of the archive's messages. ok is false where they are in none.
func ExamineBucket(cfg *config.Config) (line doctor.Line, ok bool) {
	kept := cfg.Trainer.Archive.Messages
	if kept.Bytes == 0 || !kept.InBucket() {
		return doctor.Line{}, false
	}
	line = doctor.Line{Check: "bucket", Verdict: doctor.OK, Detail: kept.Dir + ": an object was listed, written and removed"}
	excludes := true
	there, err := bucket.Open(kept, cfg.Run.Name)
	if err == nil {
		_, err = there.List()
		if err == nil {
			err = there.Probe()
		}
		if err == nil {
			excludes, err = there.Excludes()
		}
		err = errors.Join(err, there.Close())
	}
	if err == nil && !excludes {
		line.Verdict = doctor.Warn
		line.Detail += "; the store does not refuse to write over an object (If-None-Match)"
		line.Remedy = "do not start two runs of one name there at the same moment: one of them is stopped only before its next segment"
	}
	if err != nil {
		line.Verdict, line.Detail = doctor.Fail, err.Error()
		line.Remedy = "see trainer.archive.messages.s3, and the rights to list, get, put and delete objects below " + kept.Dir
	}
	return line, true
}

// unreadable are messages that cannot be read.
type unreadable struct{ err error }

// List implements messages.Segments.
func (u unreadable) List() ([]messages.Stored, error) { return nil, u.err }

// Open implements messages.Segments.
func (u unreadable) Open(string) (messages.Blob, error) { return nil, u.err }

// openArchive opens the bucket where the trainer keeps the stream's messages, and the spool before it; nil where it keeps them in a folder,
// or does not keep them.
func (t *trainerRole) openArchive(metrics *trainer.Metrics) (messages.Store, error) {
	kept := t.cfg.Trainer.Archive.Messages
	if kept.Bytes == 0 || kept.ByRole() || !kept.InBucket() {
		return nil, nil
	}
	spool, err := t.openSpool(func(bytes int64) { metrics.SetArchiveWaiting(bytes) }, func(err error) { metrics.CountArchiveSent(err) })
	if err != nil {
		return nil, err
	}
	t.atClose(func() { _ = spool.Close() }) // it logs the rest
	return spool, nil
}

// openSpool opens the bucket of the stream's messages, and the spool before it.
func (p *process) openSpool(waiting func(bytes int64), sent func(error)) (*messages.Spool, error) {
	kept := p.cfg.Trainer.Archive
	there, err := bucket.Open(kept.Messages, p.cfg.Run.Name)
	if err != nil {
		return nil, err
	}
	spool, err := messages.OpenSpool(kept.MessagesFolder(p.cfg.Trainer.Checkpoint.Dir), there, messages.SpoolConfig{
		Bytes: kept.Messages.S3.SpoolBytes, Delay: kept.Messages.S3.Delay, Wait: kept.Required, Waiting: waiting, Sent: sent,
	}, p.log)
	if err != nil {
		return nil, fmt.Errorf("trainer.archive.messages.dir: %w", err)
	}
	return spool, nil
}
