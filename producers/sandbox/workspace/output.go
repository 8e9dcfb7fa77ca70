package workspace

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/producers/sandbox"
)

// Output is a program's output, kept up to a bound: its beginning and its end. All of it is read as it comes, so that no
// program waits for a reader and no flood is held.
type Output struct {
	f *os.File
	// parked is sent to when the reader has stopped for Take, and goes on after resume.
	parked, resume chan struct{}
	done           chan struct{}

	mu   sync.Mutex
	most int
	head []byte
	tail []byte
	left int // bytes between them
}

// NewOutput reads f until its end; it is the output's to close.
func NewOutput(f *os.File, most int) *Output {
	o := &Output{f: f, most: most, parked: make(chan struct{}), resume: make(chan struct{}), done: make(chan struct{})}
	go o.readPipe()
	return o
}

func (o *Output) readPipe() {
	defer close(o.done)
	buffer := make([]byte, 32<<10)
	for {
		n, err := o.f.Read(buffer)
		o.addBytes(buffer[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			o.parked <- struct{}{}
			<-o.resume
		case err != nil:
			return
		}
	}
}

func (o *Output) addBytes(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := o.most - o.most/2 - len(o.head); room > 0 && o.left == 0 && len(o.tail) == 0 {
		n := min(room, len(data))
		o.head, data = append(o.head, data[:n]...), data[n:]
	}
	o.tail = append(o.tail, data...)
	if over := len(o.tail) - o.most/2; over > 0 {
		o.left += over
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
}

// most bytes that Take reads beside the bytes read before: a program that never stops writing does not stop a turn.
const mostTaken = 1 << 20

// Take returns the bytes written since the last Take. It has everything that was written before the call, though the pipe stays
// open: a process that was left behind may hold it, and need not end.
func (o *Output) Take() string {
	_ = o.f.SetReadDeadline(time.Unix(1, 0))
	select {
	case <-o.parked:
		o.readRest()
		_ = o.f.SetReadDeadline(time.Time{})
		o.resume <- struct{}{}
	case <-o.done:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	text := o.joinText()
	o.head, o.tail, o.left = o.head[:0], o.tail[:0], 0
	return text
}

// readRest reads the pipe's content, past the deadline.
func (o *Output) readRest() {
	buffer := make([]byte, 32<<10)
	for taken := 0; taken < mostTaken; {
		n := sandbox.ReadNow(o.f, buffer)
		if n <= 0 {
			return
		}
		o.addBytes(buffer[:n])
		taken += n
	}
}

func (o *Output) joinText() string {
	text := string(o.head)
	if o.left > 0 {
		text += fmt.Sprintf("\n... %d bytes left out ...\n", o.left)
	}
	return strings.ToValidUTF8(text+string(o.tail), "\uFFFD")
}

// Close ends the reading.
func (o *Output) Close() { _ = o.f.Close() }
