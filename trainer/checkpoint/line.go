package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// Line is a line of the record of steps that is not decoded: a search through many lines decodes few of them. It is valid until the next
// line is read.
type Line struct {
	// Step is the line's step.
	Step int64
	text []byte
}

// Contains reports whether the line has a text as it stands in the file.
func (l *Line) Contains(text []byte) bool { return bytes.Contains(l.text, text) }

// Decode decodes the line into a *[Record], or a struct with some of its fields.
func (l *Line) Decode(into any) error {
	if err := json.Unmarshal(l.text, into); err != nil {
		return fmt.Errorf("decode the line of step %d in %s: %w", l.Step, RecordFile, err)
	}
	return nil
}

// Lines reads the record of a store as [Records] does, chain included, without decoding what the lines hold. A line that was changed comes
// with a *[Damage]; a line that names no step is left out.
func Lines(dir string) iter.Seq2[*Line, error] {
	return func(yield func(*Line, error) bool) {
		f, err := os.Open(filepath.Join(dir, RecordFile))
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(nil, fmt.Errorf("read step records: %w", err))
			return
		}
		defer f.Close()
		in, before := bufio.NewReaderSize(f, 1<<20), ""
		for number := 1; ; number++ {
			text, err := in.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return // the end, or a line written in part
			}
			if err != nil {
				yield(nil, fmt.Errorf("read %s: %w", f.Name(), err))
				return
			}
			line := &Line{text: text}
			plain, own := cutChain(text)
			follows := own == "" && before == "" || own == lineChain(before, plain)
			before = own
			if n, _ := fmt.Sscanf(string(text[:min(len(text), 32)]), `{"step":%d`, &line.Step); n != 1 {
				continue
			}
			var fault error
			if !follows && !(number == 1 && line.Step > 0) {
				want := fmt.Sprintf("line %d, step %d, as it was written after the line before it", number, line.Step)
				fault = &Damage{Dir: dir, File: RecordFile, Want: want, Have: errChain.Error()}
			}
			if !yield(line, fault) {
				return
			}
		}
	}
}

// ShortName names the weights of a version for people: the first 12 digits of the hash of its first file of weights; "" where that is not
// known.
func (p *Published) ShortName() string {
	if p == nil {
		return ""
	}
	first := ""
	for name := range p.Files {
		whole := strings.HasPrefix(name, "model")
		if first == "" || whole && !strings.HasPrefix(first, "model") || whole == strings.HasPrefix(first, "model") && name < first {
			first = name
		}
	}
	hash := p.Files[first]
	return hash[:min(len(hash), 12)]
}
