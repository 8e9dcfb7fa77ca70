package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/plainfile"
)

// LogFile is the log of weir up, a JSON object a line.
const LogFile = "weir.log"

// tailBytes bounds how much of the log's end is read.
const tailBytes = 1 << 20

// LogLine is a line of the log. Equal lines that follow one another are one, counted.
type LogLine struct {
	At    string `json:"at"`
	Level string `json:"level"`
	Text  string `json:"text"`
	// Rest are the further fields, name=value.
	Rest  string `json:"rest"`
	Count int    `json:"count"`
}

// logFields are those of a line that have a place of their own, or say the same in every line.
var logFields = []string{"time", "level", "msg", "run"}

// Log returns the newest lines of the log whose level is at least WARN where severe, else INFO; the newest first, at most so many. A run of
// separate roles has no log in its folder, and no lines.
func (f *Folder) Log(most int, severe bool) ([]LogLine, error) {
	tail, err := readTail(filepath.Join(f.Dir, LogFile))
	if f.Dir == "" || errors.Is(err, fs.ErrNotExist) {
		return []LogLine{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	out := []LogLine{}
	lines := bytes.Split(bytes.TrimSuffix(tail, []byte("\n")), []byte("\n"))
	for _, line := range slices.Backward(lines) {
		l, ok := parseLogLine(line)
		if !ok || severe && l.Level != "WARN" && l.Level != "ERROR" || l.Level == "DEBUG" {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Level == l.Level && out[n-1].Text == l.Text {
			out[n-1].Count++
			continue
		}
		if len(out) == most {
			break
		}
		out = append(out, l)
	}
	return out, nil
}

// readTail reads the end of a file, from the beginning of a line.
func readTail(path string) ([]byte, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-tailBytes)
	data, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if from > 0 {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	return data, err
}

func parseLogLine(line []byte) (LogLine, bool) {
	var fields map[string]any
	in := json.NewDecoder(bytes.NewReader(line))
	in.UseNumber() // a number stays as it was written
	if in.Decode(&fields) != nil {
		return LogLine{}, false
	}
	text := func(name string) string {
		s, _ := fields[name].(string)
		return s
	}
	l := LogLine{At: text("time"), Level: text("level"), Text: text("msg"), Count: 1}
	var rest []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(logFields, name) {
			rest = append(rest, fmt.Sprintf("%s=%v", name, fields[name]))
		}
	}
	l.Rest = strings.Join(rest, " ")
	return l, l.Text != ""
}
