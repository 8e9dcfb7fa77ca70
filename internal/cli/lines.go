package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/term"

	"github.com/weir-rl/weir/internal/lifecycle"
)

// lineReader reads typed or piped text, a line at a time.
type lineReader struct {
	// next blocks until there is a line. It is io.EOF at the end.
	next func() (string, error)
	// restore gives the terminal back as it was; nil where none was changed.
	restore func()
	lines   chan line
}

type line struct {
	text string
	err  error
}

// newLineReader edits lines on a terminal, with a prompt and a history, and reads them as they are from anything else.
func newLineReader(in io.Reader, screen io.Writer, prompt string) *lineReader {
	r := &lineReader{lines: make(chan line)}
	if isTerminal(in) && isTerminal(screen) {
		r.editLines(in.(*os.File), screen, prompt)
		return r
	}
	scanner := bufio.NewScanner(in)
	r.next = func() (string, error) {
		if !scanner.Scan() {
			if err := scanner.Err(); err != nil {
				return "", fmt.Errorf("read a line: %w", err)
			}
			return "", io.EOF
		}
		return scanner.Text(), nil
	}
	return r
}

// editLines reads from a terminal. It is raw only while a line is typed: Ctrl-C ends the process as ever in between.
func (r *lineReader) editLines(in *os.File, screen io.Writer, prompt string) {
	keys := &watchedKeys{Reader: in}
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keys, screen}, prompt)
	var before atomic.Pointer[term.State]
	r.restore = func() {
		if state := before.Swap(nil); state != nil {
			_ = term.Restore(int(in.Fd()), state) // the process ends, or the next line tries again
		}
	}
	r.next = func() (string, error) {
		if width, height, err := term.GetSize(int(in.Fd())); err == nil && width > 0 {
			_ = t.SetSize(width, height) // it only wraps the line elsewhere
		}
		state, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return "", fmt.Errorf("edit a line on the terminal: %w", err)
		}
		before.Store(state)
		defer r.restore()
		text, err := t.ReadLine()
		if err == io.EOF { //nolint:errorlint // ReadLine returns it as it is
			fmt.Fprint(screen, "\r\n")
			if keys.interrupted {
				return "", &lifecycle.SignalError{Signal: syscall.SIGINT}
			}
		}
		return text, err
	}
}

// readLine waits for a line, and returns the cause when ctx ends before it has come.
func (r *lineReader) readLine(ctx context.Context) (string, error) {
	go func() {
		text, err := r.next()
		select {
		case r.lines <- line{text, err}:
		case <-ctx.Done():
		}
	}()
	select {
	case l := <-r.lines:
		return l.text, l.err
	case <-ctx.Done():
		if r.restore != nil {
			r.restore()
		}
		return "", context.Cause(ctx)
	}
}

// watchedKeys notes Ctrl-C, which a raw terminal passes on as a key like any other.
type watchedKeys struct {
	io.Reader
	interrupted bool
}

const keyCtrlC = 0x03

// Read passes on the typed text.
func (k *watchedKeys) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	k.interrupted = k.interrupted || bytes.IndexByte(p[:n], keyCtrlC) >= 0
	return n, err
}
