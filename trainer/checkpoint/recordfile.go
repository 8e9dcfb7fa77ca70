package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
)

// RecordFile is the name of the record of all steps within a store: a line of JSON each.
const RecordFile = "steps.jsonl"

// ErrRecord is returned by Load, wrapped, when the record of steps lacks the lines that the checkpoint goes on from.
var ErrRecord = errors.New("the record of steps was cut, changed or removed")

// Tail is the end of a line of the record of steps. The zero value is the beginning of the file.
type Tail struct {
	// Offset is where the next line begins, in bytes.
	Offset int64 `json:"offset"`
	// Chain is the line's chain: it stands for every line so far.
	Chain string `json:"chain"`
}

// chainEnd is how a line ends after its other fields; chainSize its length, the line's end included.
const (
	chainKey  = `,"chain":"`
	chainSize = len(chainKey) + 2*sha256.Size + len("\"}\n")
)

// encodeLine encodes a record that follows a line with the chain before, and sets the record's own chain.
func (r *Record) encodeLine(before string) ([]byte, error) {
	r.Chain = ""
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		return nil, fmt.Errorf("encode step record: %w", err)
	}
	plain := bytes.TrimSuffix(b.Bytes(), []byte("}\n"))
	r.Chain = lineChain(before, plain)
	return append(plain, chainKey+r.Chain+"\"}\n"...), nil
}

// lineChain returns the chain of a line; plain is the line up to its own chain.
func lineChain(before string, plain []byte) string {
	h := sha256.New()
	h.Write([]byte(before + "\n"))
	h.Write(plain)
	return hex.EncodeToString(h.Sum(nil))
}

// cutChain cuts a line into the part before its chain and the chain; "" if it has no chain.
func cutChain(line []byte) (plain []byte, own string) {
	cut := len(line) - chainSize
	if cut < 0 || !bytes.HasPrefix(line[cut:], []byte(chainKey)) || !bytes.HasSuffix(line, []byte("\"}\n")) {
		return line, ""
	}
	return line[:cut], string(line[cut+len(chainKey) : len(line)-len("\"}\n")])
}

// Records reads the record of all steps of a store, a line at a time and in order. A store without a record file has no records. A last
// line that was cut short is left out. A line that does not go on from the line before it comes with a *Damage that names it; for a line
// that does not decode the record is nil. Any other fault ends the reading.
func Records(dir string) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		f, err := os.Open(filepath.Join(dir, RecordFile))
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(nil, fmt.Errorf("read step records: %w", err))
			return
		}
		defer f.Close()
		err = scanLines(f, func(number int, r *Record, _ int64, fault error) bool {
			var want string
			switch {
			case fault == nil:
				return yield(r, nil)
			case r == nil:
				want = fmt.Sprintf("line %d as JSON", number)
			default:
				want = fmt.Sprintf("line %d, step %d, as it was written after the line before it", number, r.Step)
			}
			return yield(r, &Damage{Dir: dir, File: RecordFile, Want: want, Have: fault.Error()})
		})
		if err != nil {
			yield(nil, fmt.Errorf("read %s: %w", f.Name(), err))
		}
	}
}

// RecordLine is a line of the record of steps, and the offset at which the next line begins.
type RecordLine struct {
	Record *Record
	End    int64
}

// RecordsFrom reads the record of a store from an offset at which a line begins, for a reader that follows a record as it grows. A store
// without a record file has no lines. A last line that was cut short is left out. A line that does not decode, or does not go on from the
// line before it, is a *Damage that ends the reading: also where the trainer writes its last line anew at that moment.
func RecordsFrom(dir string, offset int64) iter.Seq2[RecordLine, error] {
	return func(yield func(RecordLine, error) bool) {
		f, err := os.Open(filepath.Join(dir, RecordFile))
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err == nil {
			defer f.Close()
			_, err = f.Seek(offset, io.SeekStart)
		}
		if err == nil {
			err = scanLines(f, func(_ int, r *Record, end int64, fault error) bool {
				if fault == nil {
					return yield(RecordLine{r, offset + end}, nil)
				}
				want := fmt.Sprintf("a line after %d bytes that goes on from the line before it", offset)
				return yield(RecordLine{}, &Damage{Dir: dir, File: RecordFile, Want: want, Have: fault.Error()}) && false
			})
		}
		if err != nil {
			yield(RecordLine{}, fmt.Errorf("read step records of %s: %w", dir, err))
		}
	}
}

// RawRecords is the part of a store's record from the line of step first to that of step last, as it is in the file.
func RawRecords(dir string, first, last int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, RecordFile))
	if err != nil {
		return nil, fmt.Errorf("read step records: %w", err)
	}
	defer f.Close()
	before, begin, end := int64(0), int64(-1), int64(-1)
	err = scanLines(f, func(_ int, r *Record, at int64, _ error) bool {
		if r != nil && r.Step == first && begin < 0 {
			begin = before
		}
		if before = at; r != nil && r.Step == last {
			end = at
		}
		return end < 0
	})
	if err == nil && (begin < 0 || end < begin) {
		err = fmt.Errorf("it has no lines of the steps %d to %d", first, last)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return io.ReadAll(io.NewSectionReader(f, begin, end-begin))
}

// ReadRecords is all of Records at once. The first fault ends it.
func ReadRecords(dir string) ([]Record, error) {
	var out []Record
	for r, err := range Records(dir) {
		if err != nil {
			return nil, err
		}
		out = append(out, *r)
	}
	return out, nil
}

// errChain is the fault of a line that does not go on from the line before it.
var errChain = errors.New("another chain of hashes")

// scanLines calls each for the lines of a record until each returns false. end is the offset just after the line. fault is errChain where
// the line's chain does not go on from the line before; the first line of a record that begins with a later step cannot be checked. For a
// line that does not decode r is nil, and fault is the decoder's error.
func scanLines(file io.Reader, each func(number int, r *Record, end int64, fault error) bool) error {
	in := bufio.NewReaderSize(file, 1<<16)
	end, before := int64(0), ""
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the end, or a line written in part
		}
		if err != nil {
			return err
		}
		r := &Record{}
		fault := json.Unmarshal(line, r)
		if fault != nil {
			if _, more := in.Peek(1); errors.Is(more, io.EOF) {
				return nil // the last line, written in part
			}
			r = nil
		}
		end += int64(len(line))
		plain, own := cutChain(line)
		follows := own == lineChain(before, plain) || own == "" && before == "" || number == 1 && r != nil && r.Step > 0
		if fault == nil && !follows {
			fault = errChain
		}
		if r != nil && r.Forked != nil {
			r.Forked.Begins = number == 1 && own == lineChain("", plain)
		}
		before = own
		if !each(number, r, end, fault) {
			return nil
		}
	}
}

// seekTail returns the end of the last line for which wanted is true. A line that does not decode is an error.
func seekTail(f *os.File, wanted func(*Record) bool) (tail Tail, err error) {
	var broken error
	err = scanLines(f, func(number int, r *Record, end int64, fault error) bool {
		if r == nil {
			broken = fmt.Errorf("line %d: %w", number, fault)
		} else if wanted(r) {
			tail = Tail{Offset: end, Chain: r.Chain}
		}
		return broken == nil
	})
	return tail, errors.Join(err, broken)
}

// openRecord opens the record of a store, making it if need be.
func openRecord(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, RecordFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open step records: %w", err)
	}
	return f, nil
}

// recordTail returns the end of the record: read from the file when the store has not written a line yet.
func (s *Store) recordTail() (Tail, error) {
	if s.tail != nil {
		return *s.tail, nil
	}
	f, err := openRecord(s.cfg.Dir)
	if err != nil {
		return Tail{}, err
	}
	defer f.Close()
	tail, err := seekTail(f, func(*Record) bool { return true })
	s.tail = &tail
	return tail, err
}

// writeRecord puts the line of a step after the tail that it goes on from, cuts what follows, and syncs.
func (s *Store) writeRecord(after Tail, r *Record) (err error) {
	line, err := r.encodeLine(after.Chain)
	if err != nil {
		return err
	}
	f, err := openRecord(s.cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("write step record: %w", err)
	}
	if info.Size() < after.Offset {
		return fmt.Errorf("write step record of step %d: %w while the trainer ran: %s has %d bytes, want %d",
			r.Step, ErrRecord, f.Name(), info.Size(), after.Offset)
	}
	if have := make([]byte, len(line)); info.Size() == after.Offset+int64(len(line)) {
		if _, err = f.ReadAt(have, after.Offset); err == nil && bytes.Equal(have, line) {
			s.before, s.tail = after, &Tail{Offset: info.Size(), Chain: r.Chain}
			return nil // it is there
		}
	}
	if err == nil && info.Size() > after.Offset {
		err = f.Truncate(after.Offset)
	}
	if err == nil {
		_, err = f.WriteAt(line, after.Offset)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = SyncDir(s.cfg.Dir)
	}
	if err != nil {
		return fmt.Errorf("write step record: %w", err)
	}
	s.before, s.tail = after, &Tail{Offset: after.Offset + int64(len(line)), Chain: r.Chain}
	return nil
}

// findTail returns the place in the record after which the line of the checkpoint comes, from which the run goes on. Lines before it that
// are gone are an error that wraps ErrRecord.
func (s *Store) findTail(c *Checkpoint) (Tail, error) {
	f, err := os.Open(filepath.Join(s.cfg.Dir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		if c.State.Records == nil || c.State.Records.Offset == 0 {
			return Tail{}, nil
		}
		return Tail{}, s.refuseRecord(c, "no such file")
	}
	if err != nil {
		return Tail{}, fmt.Errorf("repair step records: %w", err)
	}
	defer f.Close()
	after := c.State.Records
	if after == nil { // a checkpoint of a build that did not note the place
		tail, err := seekTail(f, func(r *Record) bool { return r.Step < c.Record.Step })
		if err != nil {
			return Tail{}, fmt.Errorf("repair %s: %w", f.Name(), err)
		}
		return tail, nil
	}
	have, err := findLack(f, *after)
	if err != nil {
		return Tail{}, fmt.Errorf("repair %s: %w", f.Name(), err)
	}
	if have == "" {
		return *after, nil
	}
	// An empty file is the operator's request to go on without the lines before; so is a file that begins with this step.
	anew, err := isEmptyOrBegun(f, &c.Record, after.Chain)
	if err != nil {
		return Tail{}, fmt.Errorf("repair %s: %w", f.Name(), err)
	}
	if anew {
		return Tail{Chain: after.Chain}, nil
	}
	return Tail{}, s.refuseRecord(c, have)
}

func (s *Store) refuseRecord(c *Checkpoint, have string) error {
	path := filepath.Join(s.cfg.Dir, RecordFile)
	return fmt.Errorf("%w: %s: %s goes on from its first %d bytes: want them, have %s; put the file back from a copy, or leave an empty "+
		"file there to go on without it: weir audit then begins with step %d", ErrRecord, path, s.Path(c.State.Step), c.State.Records.Offset, have, c.State.Step)
}

// findLack returns a description of the file's content if it does not have the lines up to a tail; "" if it has them. The last line's chain
// stands for the others, so that a start does not read them: an audit does.
func findLack(f *os.File, want Tail) (have string, err error) {
	if want.Offset == 0 {
		return "", nil
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() < want.Offset {
		return fmt.Sprintf("%d bytes", info.Size()), nil
	}
	end := make([]byte, min(int64(chainSize), want.Offset))
	if _, err := f.ReadAt(end, want.Offset-int64(len(end))); err != nil {
		return "", err
	}
	if _, own := cutChain(end); own != want.Chain || end[len(end)-1] != '\n' {
		return "other lines", nil
	}
	return "", nil
}

// isEmptyOrBegun reports whether a file is empty, or its first line is the record's, after a line with the chain before.
func isEmptyOrBegun(f *os.File, r *Record, before string) (bool, error) {
	again := *r
	line, err := again.encodeLine(before)
	if err != nil {
		return false, err
	}
	found := make([]byte, len(line))
	n, err := f.ReadAt(found, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return n == 0 || bytes.Equal(found[:n], line), nil
}

// LastLine is the step and the chain of the last line of a store's record; -1 and "" where the record has none. Nothing is verified.
func LastLine(dir string) (step int64, chain string, err error) {
	f, err := os.Open(filepath.Join(dir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return -1, "", nil
	}
	if err != nil {
		return -1, "", fmt.Errorf("read step records: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return -1, "", fmt.Errorf("read step records: %w", err)
	}
	for size := int64(1 << 16); ; size *= 4 {
		size = min(size, info.Size())
		data := make([]byte, size)
		if _, err := f.ReadAt(data, info.Size()-size); err != nil && !errors.Is(err, io.EOF) {
			return -1, "", fmt.Errorf("read step records: %w", err)
		}
		data = data[:bytes.LastIndexByte(data, '\n')+1] // a last line may be written in part
		begin := bytes.LastIndexByte(bytes.TrimSuffix(data, []byte("\n")), '\n') + 1
		if begin == 0 && size < info.Size() {
			continue
		}
		var r struct {
			Step  int64  `json:"step"`
			Chain string `json:"chain"`
		}
		if len(data) == 0 {
			return -1, "", nil
		}
		if err := json.Unmarshal(data[begin:], &r); err != nil {
			return -1, "", fmt.Errorf("read the last line of %s: %w", f.Name(), err)
		}
		return r.Step, r.Chain, nil
	}
}
