package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// seal is the line after the lines of a part: its chain stands for every byte of the segment so far, of both files.
type seal struct {
	// Step is the step of the part, End the size of the segment's .bin with the part's frame.
	Step int64 `json:"step"`
	End  int64 `json:"end"`
	// Chain is the SHA-256, in hex, of the chain of the seal before, the part's frame, and the part's lines.
	Chain string `json:"chain"`
	// After, of the first seal of a segment, is the chain of the last seal before the segment, with which this chain begins; ""
	// where there was none, and in segments of older builds.
	After string `json:"after,omitempty"`
}

// sealLine is a line that is a seal. An entry's line has no key "seal".
type sealLine struct {
	Seal *seal  `json:"seal,omitempty"`
	ID   string `json:"id,omitempty"`
}

// nextChain returns the chain of a part after the chain of the seal before.
func nextChain(before string, frame, lines []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%d\n", before, len(frame))
	h.Write(frame)
	h.Write(lines)
	return hex.EncodeToString(h.Sum(nil))
}

// Fault is a byte of a segment that is not as it was written, or a segment that is gone.
type Fault struct {
	// File is the file's name within the folder of the archive, Step the step of the part, or of the last part before the fault; -1 where
	// that is not known.
	File string
	Step int64
	Want string
	Have string
}

// Checked counts what Verify has read.
type Checked struct {
	Segments int
	Bytes    int64
	// Last is the step of the last seal; -1 where there is none.
	Last int64
	// Open are the segments whose last lines or bytes no seal covers: their writer was cut off, or is at work, or an older build wrote them,
	// or their end was cut off at a seal.
	Open   []string
	Faults []Fault
}

// Verify reads every segment of an archive and compares it with its seals. A segment that its writer removes meanwhile is left out.
func Verify(dir string) (*Checked, error) {
	numbers, err := Segments(dir)
	if err != nil {
		return nil, fmt.Errorf("verify the archive: %w", err)
	}
	out := &Checked{Last: -1}
	before := "" // the chain of the last seal so far; "" where it is not known
	for i, n := range numbers {
		if i > 0 && numbers[i-1] != n-1 {
			before = ""
			out.Faults = append(out.Faults, Fault{filepath.Base(linesPath(dir, n-1)), -1, "the segment, between others", "no such file"})
		}
		v := &segmentCheck{dir: dir, number: n, Checked: out, step: -1, before: before}
		faults := len(out.Faults)
		if err := v.checkSegment(); errors.Is(err, fs.ErrNotExist) {
			if _, gone := os.Stat(linesPath(dir, n)); gone == nil {
				v.addFault(binPath(dir, n), "the file beside "+filepath.Base(linesPath(dir, n)), "no such file")
			}
		} else if err != nil {
			return nil, fmt.Errorf("verify the archive: %w", err)
		}
		out.Last = max(out.Last, v.step)
		if before = cmp.Or(v.chain, before); len(out.Faults) > faults {
			before = ""
		}
	}
	return out, nil
}

// segmentCheck is the verification of a segment.
type segmentCheck struct {
	*Checked
	dir    string
	number int
	// step and chain are those of the last seal; before is the chain of the last seal of the segments before, "" where it is not known.
	step          int64
	chain, before string
}

func (v *segmentCheck) addFault(path, want, have string) {
	v.Faults = append(v.Faults, Fault{filepath.Base(path), v.step, want, have})
}

// checkSegment reads the lines of a segment, and at each seal the frame that it covers. The first fault ends it: what follows is chained to
// it.
func (v *segmentCheck) checkSegment() error {
	path := linesPath(v.dir, v.number)
	lines, err := os.Open(path)
	if err != nil {
		return err
	}
	defer lines.Close()
	bin, err := os.Open(binPath(v.dir, v.number))
	if err != nil {
		return err
	}
	defer bin.Close()
	v.Segments++
	in := bufio.NewReaderSize(lines, 1<<16)
	var part []byte
	end := int64(0)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		v.Bytes += int64(len(line))
		if errors.Is(err, io.EOF) {
			info, err := bin.Stat()
			if err != nil {
				return err
			}
			v.checkTail(path, number, part, line, info.Size()-end)
			return nil
		}
		if err != nil {
			return err
		}
		var l sealLine
		if fault := json.Unmarshal(line, &l); fault != nil || l.Seal == nil && l.ID == "" {
			v.addFault(path, fmt.Sprintf("line %d as it was written", number), "another line")
			return nil
		}
		if l.Seal == nil {
			part = append(part, line...)
			continue
		}
		if same := encodeSeal(*l.Seal); !bytes.Equal(same, line) || l.Seal.End < end || l.ID != "" || l.Seal.After != "" && v.chain != "" {
			v.addFault(path, fmt.Sprintf("line %d as it was written", number), "another line")
			return nil
		}
		if l.Seal.End-end > maxFrame {
			v.addFault(path, fmt.Sprintf("line %d as it was written", number), fmt.Sprintf("a frame of %d bytes", l.Seal.End-end))
			return nil
		}
		frame := make([]byte, l.Seal.End-end)
		if _, err := bin.ReadAt(frame, end); err != nil {
			v.addFault(bin.Name(), fmt.Sprintf("%d bytes", l.Seal.End), err.Error())
			return nil
		}
		v.Bytes += int64(len(frame))
		have := nextChain(cmp.Or(v.chain, l.Seal.After), frame, part)
		if have != l.Seal.Chain {
			v.step = l.Seal.Step
			v.addFault(fmt.Sprintf("%s, or %s", path, filepath.Base(bin.Name())),
				fmt.Sprintf("chain %s at line %d", l.Seal.Chain, number), "chain "+have)
			return nil
		}
		v.checkBefore(l.Seal.After)
		v.step, v.chain, end, part = l.Seal.Step, l.Seal.Chain, l.Seal.End, part[:0]
	}
}

// checkBefore compares the chain that a segment's first seal follows with the last chain of the segments before, whose end may be cut off.
func (v *segmentCheck) checkBefore(after string) {
	if v.chain == "" && after != "" && v.before != "" && after != v.before {
		v.addFault(linesPath(v.dir, v.number-1), "a last seal of chain "+after, "chain "+v.before+": its end is gone")
	}
}

// checkTail looks at what stands after the last seal: nothing, or what its writer was cut off at. rest is what has no line end. A whole
// line without its end was changed there: a write that was cut short leaves the beginning of a line. further is how many bytes of the
// segment's .bin no seal covers.
func (v *segmentCheck) checkTail(path string, number int, part, rest []byte, further int64) {
	var l sealLine
	if n := len(rest) - 1; n > 0 && json.Unmarshal(rest[:n], &l) == nil && (l.Seal != nil || l.ID != "") {
		v.addFault(path, fmt.Sprintf("the end of line %d", number), fmt.Sprintf("%q", rest[n:]))
		return
	}
	if len(part) > 0 || len(rest) > 0 || further > 0 {
		v.Open = append(v.Open, filepath.Base(path))
	}
}

// encodeSeal encodes a seal as a line.
func encodeSeal(s seal) []byte {
	line, err := json.Marshal(sealLine{Seal: &s})
	if err != nil {
		return nil // numbers and a text always encode
	}
	return append(line, '\n')
}

// lastChain returns the chain of the last seal of a store's segments; "" where there is none.
func lastChain(dir string, numbers []int) (string, error) {
	for _, n := range slices.Backward(numbers) {
		chain, err := lastChainOf(linesPath(dir, n))
		if chain != "" || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return chain, err
		}
	}
	return "", nil
}

// tailBytes is how much of a segment's end is read for its last seal, at first; the last line of a segment that was ended in order is one.
const tailBytes = 64 << 10

// lastChainOf returns the chain of the last seal in a file of lines; "" where there is none. A line that a crash cut is passed over.
func lastChainOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	for n := int64(tailBytes); ; n *= 4 {
		from := max(0, info.Size()-n)
		tail := make([]byte, info.Size()-from)
		if _, err := f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		whole := tail[:bytes.LastIndexByte(tail, '\n')+1]
		if from > 0 {
			_, whole, _ = bytes.Cut(whole, []byte{'\n'}) // of a line that begins before
		}
		for len(whole) > 0 {
			at := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
			var l sealLine
			if json.Unmarshal(whole[at:], &l) == nil && l.Seal != nil {
				return l.Seal.Chain, nil
			}
			whole = whole[:at]
		}
		if from == 0 {
			return "", nil
		}
	}
}
