package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rl/weir/schemas"
)

// segmentCount is how many segments the bound has room for.
const segmentCount = 16

// store is a folder of segments as its writer holds it.
type store struct {
	dir   string
	bytes int64
	// sizes are the sizes of the segments on disk, by number; the newest is the open segment.
	sizes map[int]int64
	now   int
	lines *os.File
	bin   *os.File
	// end is where the next frame goes, written the size of the lines, and chain that of the last seal.
	end     int64
	written int64
	chain   string
	// after is the chain of the last seal before the open segment.
	after    string
	encoder  *zstd.Encoder
	messages schemas.Encoder
	raw      []byte
}

func openStore(dir string, bytes int64) (*store, error) {
	s := &store{dir: dir, bytes: bytes, sizes: map[int]int64{}}
	numbers, err := Segments(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		for _, path := range []string{linesPath(dir, n), binPath(dir, n)} {
			if info, err := os.Stat(path); err == nil {
				s.sizes[n] += info.Size()
			}
		}
		s.now = max(s.now, n)
	}
	if s.chain, err = lastChain(dir, numbers); err != nil {
		return nil, err
	}
	if err := removeStray(dir, numbers); err != nil {
		return nil, err
	}
	s.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	return s, err
}

// removeStray removes the files of segments whose lines are gone, or never came: a kill has cut off their removal, or their begin.
func removeStray(dir string, numbers []int) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.bin"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".bin"))
		if err != nil || path != binPath(dir, n) || slices.Contains(numbers, n) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func linesPath(dir string, n int) string { return filepath.Join(dir, fmt.Sprintf("%06d.jsonl", n)) }
func binPath(dir string, n int) string   { return filepath.Join(dir, fmt.Sprintf("%06d.bin", n)) }

// Segments are the numbers of a store's segments, the oldest first.
func Segments(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".jsonl")
		if n, err := strconv.Atoi(name); ok && err == nil && n > 0 && e.Name() == filepath.Base(linesPath(dir, n)) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// makeRoom makes sure that a segment is open, and that the store is within its bound.
func (s *store) makeRoom() error {
	if s.lines != nil && s.sizes[s.now] >= s.bytes/segmentCount {
		if err := s.shutSegment(); err != nil {
			return err
		}
	}
	if s.lines == nil {
		// A segment is there while its lines are: they come last, and go first.
		bin, err := os.OpenFile(binPath(s.dir, s.now+1), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		lines, err := os.OpenFile(linesPath(s.dir, s.now+1), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return errors.Join(err, bin.Close(), os.Remove(bin.Name()))
		}
		s.now++
		s.lines, s.bin, s.end, s.written, s.after = lines, bin, 0, 0, s.chain
	}
	total := int64(0)
	numbers := make([]int, 0, len(s.sizes))
	for n, size := range s.sizes {
		total += size
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		if total <= s.bytes || n == s.now {
			break
		}
		for _, path := range []string{linesPath(s.dir, n), binPath(s.dir, n)} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		total -= s.sizes[n]
		delete(s.sizes, n)
	}
	return nil
}

// shutSegment ends the open segment.
func (s *store) shutSegment() error {
	if s.lines == nil {
		return nil
	}
	err := errors.Join(s.lines.Close(), s.bin.Close())
	s.lines, s.bin = nil, nil
	return err
}

func (s *store) closeStore() error { return errors.Join(s.shutSegment(), s.encoder.Close()) }

// addPart writes a part: first the frame, then the lines that point into it.
func (s *store) addPart(cfg Config, p *part) error {
	if err := s.makeRoom(); err != nil {
		return err
	}
	entries := s.partEntries(cfg, p)
	var frame []byte
	if len(s.raw) > 0 {
		frame = s.encoder.EncodeAll(s.raw, nil)
		if _, err := s.bin.WriteAt(frame, s.end); err != nil {
			return err
		}
	}
	var lines bytes.Buffer
	encode := json.NewEncoder(&lines)
	encode.SetEscapeHTML(false)
	for i := range entries {
		e := &entries[i]
		if e.Size > 0 {
			e.Frame = []int64{s.end, int64(len(frame))}
		}
		if i == 0 {
			e.Skipped = p.skipped
		}
		if err := encode.Encode(e); err != nil {
			return err
		}
	}
	return s.addLines(p.step, frame, lines.Bytes())
}

// addLines writes the lines of a part, whose frame is written, and their seal. Where that fails the lines are cut off again, so that the
// next part follows whole lines.
func (s *store) addLines(step int64, frame, lines []byte) error {
	if len(lines) == 0 {
		return nil
	}
	end, chain := s.end+int64(len(frame)), nextChain(s.chain, frame, lines)
	mark := seal{Step: step, End: end, Chain: chain}
	if s.written == 0 {
		mark.After = s.after
	}
	data := append(slices.Clip(lines), encodeSeal(mark)...)
	if _, err := s.lines.WriteAt(data, s.written); err != nil {
		return errors.Join(err, s.lines.Truncate(s.written))
	}
	s.end, s.chain = end, chain
	s.written += int64(len(data))
	s.sizes[s.now] += int64(len(data) + len(frame))
	return nil
}

// partEntries returns a part's entries, and sets raw to their data, not compressed yet.
func (s *store) partEntries(cfg Config, p *part) []Entry {
	s.raw = s.raw[:0]
	out := make([]Entry, 0, len(p.used)+len(p.others))
	room := func(kept int) bool { return cfg.Samples < 0 || kept < cfg.Samples }
	kept, group := 0, ""
	for i := range p.others {
		o := &p.others[i]
		e := newEntry(o.trajectory, o.sequence, o.origin, p.step, o.at)
		e.Fate, e.Reason, e.Detail = FateRejected, o.reason, clipText(o.detail, maxAnswer)
		if room(kept) || cfg.Samples > 0 && o.trajectory.Group == group {
			if data, err := s.messages.Encode(o.trajectory); err == nil {
				e.At, e.Size = len(s.raw), len(data)
				s.raw = append(s.raw, data...)
				kept, group = kept+1, o.trajectory.Group
			}
		}
		out = append(out, e)
	}
	rows := trainedRows(p)
	kept = 0
	last, trained := -1, 0
	for i := range p.used {
		u := &p.used[i]
		e := newEntry(u.member.Trajectory, u.member.Sequence, u.origin, p.step, p.at)
		e.Fate = memberFate(&u.member, u.baseline)
		e.Reward = u.member.Return
		if e.Fate == FateTrained {
			if of := rows[trained]; p.tokens != nil && len(of) > 0 && (room(kept) || cfg.Samples > 0 && u.group == last) {
				e.At = len(s.raw)
				s.raw = appendNumbers(s.raw, p.tokens, of, sampledSegments(u.member.Trajectory))
				e.Size = len(s.raw) - e.At
				kept, last = kept+1, u.group
			}
			trained++
		}
		out = append(out, e)
	}
	return out
}

// trainedRows returns the rows of each trajectory that was trained on, by its number in the batch.
func trainedRows(p *part) map[int][]int {
	if p.tokens == nil {
		return nil
	}
	out := map[int][]int{}
	for row, t := range p.tokens.Rows.Trajectory {
		out[t] = append(out[t], row)
	}
	return out
}

// sampledSegments returns the segments of a trajectory that have a sampled token: each is a row.
func sampledSegments(t *schemas.Trajectory) []int {
	var out []int
	for i := range t.Segments {
		if slices.Contains(t.Segments[i].ActionMask, 1) {
			out = append(out, i)
		}
	}
	return out
}
