package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// CallLog writes down each call of a tool when it begins and when it has ended, in a file that outlives the process and that several
// processes share. It is safe for concurrent use.
type CallLog struct{ file *os.File }

// OpenCallLog opens the file for appending, and makes it where it is missing.
func OpenCallLog(path string) (*CallLog, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the record of calls: %w", err)
	}
	return &CallLog{file}, nil
}

// Begin writes down that a call of a tool begins: the index-th of an episode, over all its contexts.
func (l *CallLog) Begin(tool, episode string, index int) error {
	return l.write("began", tool, episode, index)
}

// End writes down that a call has ended.
func (l *CallLog) End(tool, episode string, index int) error {
	return l.write("ended", tool, episode, index)
}

func (l *CallLog) write(what, tool, episode string, index int) error {
	// A single write: lines of several processes do not mix.
	if _, err := fmt.Fprintf(l.file, "%s %s %s %d %d\n", what, tool, episode, index, time.Now().UnixNano()); err != nil {
		return fmt.Errorf("write the record of calls: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *CallLog) Close() error { return l.file.Close() }

// ToolCall is a call that a CallLog has: when it began, and ended, each time that it was made.
type ToolCall struct {
	Tool, Episode string
	Index         int
	Began, Ended  []time.Time
}

// ReadCalls reads the calls of a CallLog, in the order in which they first began; none where there is no file. A last line that was cut
// off is passed over.
func ReadCalls(path string) ([]*ToolCall, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of calls: %w", err)
	}
	defer file.Close()
	type key struct {
		tool, episode string
		index         int
	}
	var all []*ToolCall
	known := map[key]*ToolCall{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var what string
		var k key
		var at int64
		if n, _ := fmt.Sscan(lines.Text(), &what, &k.tool, &k.episode, &k.index, &at); n != 5 {
			continue
		}
		c := known[k]
		if c == nil {
			c = &ToolCall{Tool: k.tool, Episode: k.episode, Index: k.index}
			known[k], all = c, append(all, c)
		}
		if what == "began" {
			c.Began = append(c.Began, time.Unix(0, at))
		} else {
			c.Ended = append(c.Ended, time.Unix(0, at))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the record of calls: %w", err)
	}
	return all, nil
}
