package servers

import (
	"errors"
	"io"
	"os"
	"strings"
)

const (
	// mostLog bounds the log of a server of Weir's own, in bytes: a longer log becomes the earlier log, and the log begins anew. It may
	// grow beyond between two looks.
	mostLog = 64 << 20
	// tailBytes is how much of the end of a log is read for its last lines, of which lastLines are shown.
	tailBytes = 8 << 10
	lastLines = 3
)

// earlierLog is the file with the output before that of the log.
func (p *process) earlierLog() string { return p.logName() + ".1" }

// boundLog makes a log of more than most bytes the earlier log. The server keeps its descriptor, which appends: the log is copied and
// emptied, and a line that is written in between may be lost.
func (p *process) boundLog(most int64) {
	info, err := os.Stat(p.logName())
	if err != nil || info.Size() <= most {
		return // there is none yet
	}
	err = copyFileEnd(p.logName(), p.earlierLog(), most)
	if err = errors.Join(err, os.Truncate(p.logName(), 0)); err != nil { // emptied without a copy too: the disk may be full
		p.log.Warn("the log of an inference server is too long, and its content is not kept", "log", p.logName(), "err", err)
	}
}

// copyFileEnd copies the last bytes of a file, at most most, to another file.
func copyFileEnd(from, to string, most int64) (err error) {
	in, err := openEnd(from, most)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was read only
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, io.LimitReader(in, most))
	return err
}

// openEnd opens a file at the last bytes of it, at most most.
func openEnd(name string, most int64) (*os.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Seek(max(0, info.Size()-most), io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// logTail are the last lines of the log. It reads the log's end alone.
func (p *process) logTail() string {
	f, err := openEnd(p.logName(), tailBytes)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }() // it was read only
	data, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(data), "?")), "\n")
	return strings.Join(lines[max(0, len(lines)-lastLines):], " | ")
}
