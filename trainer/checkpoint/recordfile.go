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

// ErrRecord is returned by Load, wrapped, when the record of steps is not what the checkpoint goes on from.
var ErrRecord = errors.New("the record of steps was cut, changed or removed")

// Tail is the end of a line of the record of steps. The zero value is the beginning of the file.
type Tail struct {
	// Offset is where the next line begins, in bytes.
	Offset int64 `json:"offset"`
	// Chain is the line's: it stands for every line so far.
	Chain string `json:"chain"`
}

// chainEnd is how a line ends after its other fields; chainSize its length, the line's end included.
const (
	chainKey  = `,"chain":"`
	chainSize = len(chainKey) + 2*sha256.Size + len("\"}\n")
)

// line encodes a record that follows a line of that chain, and sets the record's own.
func (r *Record) line(before string) ([]byte, error) {
	r.Chain = ""
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		return nil, fmt.Errorf("encode step record: %w", err)
	}
	plain := bytes.TrimSuffix(b.Bytes(), []byte("}\n"))
	r.Chain = chain(before, plain)
	return append(plain, chainKey+r.Chain+"\"}\n"...), nil
}

// chain is that of a line given up to its own chain.
func chain(before string, plain []byte) string {
	h := sha256.New()
	h.Write([]byte(before + "\n"))
	h.Write(plain)
	return hex.EncodeToString(h.Sum(nil))
}

// chainOf is the chain that ends a line, and the line before it; "" where there is none.
func chainOf(line []byte) (plain []byte, own string) {
	cut := len(line) - chainSize
	if cut < 0 || !bytes.HasPrefix(line[cut:], []byte(chainKey)) || !bytes.HasSuffix(line, []byte("\"}\n")) {
		return line, ""
	}
	return line[:cut], string(line[cut+len(chainKey) : len(line)-len("\"}\n")])
}

// Records reads the record of all steps of a store, a line at a time and in order. A store without one has none. A
// line that was cut short at the end is left out. A line that does not go on from the one before it comes with a
// *Damage that names it; of one that is no record the record is nil. Any other fault ends the reading.
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
		err = scan(f, func(number int, r *Record, _ int64, fault error) bool {
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

// errChain says that a line does not go on from the line before it.
var errChain = errors.New("another chain of hashes")

// scan goes through the lines of a record until each says no. end is the offset just after the line. fault is errChain where
// the line's chain does not go on from the line before, as far as can be known: of a record that begins with a later step, the
// first line's cannot. Of a line that is no record r is nil, and fault says why.
func scan(file io.Reader, each func(number int, r *Record, end int64, fault error) bool) error {
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
		plain, own := chainOf(line)
		follows := own == chain(before, plain) || own == "" && before == "" || number == 1 && r != nil && r.Step > 0
		if fault == nil && !follows {
			fault = errChain
		}
		before = own
		if !each(number, r, end, fault) {
			return nil
		}
	}
}

// seek is the end of the last line that is wanted. A line that is no record is an error.
func seek(f *os.File, wanted func(*Record) bool) (tail Tail, err error) {
	var broken error
	err = scan(f, func(number int, r *Record, end int64, fault error) bool {
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

// end is where the record stands: it is looked for in the file when the store has not written a line yet.
func (s *Store) end() (Tail, error) {
	if s.tail != nil {
		return *s.tail, nil
	}
	f, err := openRecord(s.cfg.Dir)
	if err != nil {
		return Tail{}, err
	}
	defer f.Close()
	tail, err := seek(f, func(*Record) bool { return true })
	s.tail = &tail
	return tail, err
}

// writeRecord puts the line of a step after the tail that it goes on from, cuts what follows, and syncs.
func (s *Store) writeRecord(after Tail, r *Record) (err error) {
	line, err := r.line(after.Chain)
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
		return fmt.Errorf("write step record of step %d: %w while the trainer ran: %s has %d bytes, want %d", r.Step, ErrRecord, f.Name(), info.Size(), after.Offset)
	}
	if info.Size() > after.Offset {
		err = f.Truncate(after.Offset)
	}
	if err == nil {
		_, err = f.WriteAt(line, after.Offset)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = syncDir(s.cfg.Dir)
	}
	if err != nil {
		return fmt.Errorf("write step record: %w", err)
	}
	s.before, s.tail = after, &Tail{Offset: after.Offset + int64(len(line)), Chain: r.Chain}
	return nil
}

// repairRecord makes the record of all steps end with the line of the checkpoint that the run goes on from: later lines
// are cut, a missing one is added. Lines before it that are gone are an error that wraps ErrRecord.
func (s *Store) repairRecord(c *Checkpoint) error {
	f, err := os.Open(filepath.Join(s.cfg.Dir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		if c.State.Records == nil || c.State.Records.Offset == 0 {
			return s.writeRecord(Tail{}, &c.Record)
		}
		return s.refuseRecord(c, "no such file")
	}
	if err != nil {
		return fmt.Errorf("repair step records: %w", err)
	}
	defer f.Close()
	after := c.State.Records
	if after == nil { // a checkpoint of a build that did not note it
		tail, err := seek(f, func(r *Record) bool { return r.Step < c.Record.Step })
		if err != nil {
			return fmt.Errorf("repair %s: %w", f.Name(), err)
		}
		return s.writeRecord(tail, &c.Record)
	}
	have, err := lacks(f, *after)
	if err != nil {
		return fmt.Errorf("repair %s: %w", f.Name(), err)
	}
	if have == "" {
		return s.writeRecord(*after, &c.Record)
	}
	// An empty file says that somebody means to go on without the lines before; so does one that this step has begun.
	anew, err := beginsWith(f, &c.Record, after.Chain)
	if err != nil {
		return fmt.Errorf("repair %s: %w", f.Name(), err)
	}
	if anew {
		return s.writeRecord(Tail{Chain: after.Chain}, &c.Record)
	}
	return s.refuseRecord(c, have)
}

func (s *Store) refuseRecord(c *Checkpoint, have string) error {
	path := filepath.Join(s.cfg.Dir, RecordFile)
	return fmt.Errorf("%w: %s: %s goes on from its first %d bytes: want them, have %s; put the file back from a copy, or leave an empty "+
		"file there to go on without it: weir audit then begins with step %d", ErrRecord, path, s.Path(c.State.Step), c.State.Records.Offset, have, c.State.Step)
}

// lacks says what a file has instead of the lines up to a tail; "" when it has them. The last line's chain stands for
// the others, so that a start does not read them: an audit does.
func lacks(f *os.File, want Tail) (have string, err error) {
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
	if _, own := chainOf(end); own != want.Chain || end[len(end)-1] != '\n' {
		return "other lines", nil
	}
	return "", nil
}

// beginsWith says that a file is empty, or that its first line is a record's, after a line of that chain.
func beginsWith(f *os.File, r *Record, before string) (bool, error) {
	again := *r
	line, err := again.line(before)
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
