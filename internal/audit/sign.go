package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/weir-rl/weir/trainer/checkpoint"
)

// SignatureFile is the name, in a store of checkpoints, of the signatures of a run whose trainer has a key: a line of JSON for each step.
const SignatureFile = "signatures.jsonl"

// Signature is a trainer's word that a line of the record, and every line before it, is as it wrote them.
type Signature struct {
	Run  string `json:"run"`
	Step int64  `json:"step"`
	// Chain is that of the step's line, Key the public nkey of the trainer.
	Chain string `json:"chain"`
	Key   string `json:"key"`
	// Bytes are the Ed25519 signature of the other fields.
	Bytes []byte `json:"signature"`
}

// signedText is the text of a signature.
func (s *Signature) signedText() []byte {
	return fmt.Appendf(nil, "weir record of steps\n%s\n%d\n%s\n", s.Run, s.Step, s.Chain)
}

// verifySignature returns an error unless the key has signed the other fields.
func (s *Signature) verifySignature() error {
	key, err := nkeys.FromPublicKey(s.Key)
	if err == nil {
		err = key.Verify(s.signedText(), s.Bytes)
	}
	return err
}

// encodeSignature encodes a signature as a line.
func encodeSignature(s *Signature) ([]byte, error) {
	line, err := json.Marshal(s)
	return append(line, '\n'), err
}

// Signer signs the newest line of a run's record. A single goroutine calls it.
type Signer struct {
	run, dir, public string
	pair             nkeys.KeyPair
	// lines are the lines of the file, in order; read is whether they were read.
	lines []signedLine
	read  bool
}

// signedLine is a line of signatures: its step and chain, and the offset of its end.
type signedLine struct {
	step  int64
	chain string
	end   int64
}

// NewSigner makes a signer with the private nkey in a file, for the run whose checkpoints are in dir.
func NewSigner(run, dir, seedFile string) (*Signer, error) {
	seed, err := os.ReadFile(seedFile)
	if err != nil {
		return nil, fmt.Errorf("read the key that signs the record: %w", err)
	}
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return nil, fmt.Errorf("read the key that signs the record: %s: %w", seedFile, err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read the key that signs the record: %s: %w", seedFile, err)
	}
	return &Signer{run: run, dir: dir, public: public, pair: pair}, nil
}

// Close forgets the key.
func (s *Signer) Close() { s.pair.Wipe() }

// Sign signs the last line of the record, that of a step that was just done. Signatures of the same step and of later steps, which a run
// that went back has left, are removed.
func (s *Signer) Sign() error {
	step, chain, err := checkpoint.LastLine(s.dir)
	if err != nil || step < 0 {
		return err
	}
	return s.signLines(step, func(from int) (keep int, chains []string, err error) { return from, []string{chain}, nil })
}

// SignAhead signs the line that is about to take the place of the last line, whose chain is before. The last line stays signed: the
// record's line is signed whether or not a kill comes before it is written anew. Where another line of the step was signed the record was
// changed, which is an error.
func (s *Signer) SignAhead(step int64, before, chain string) error {
	return s.signLines(step, func(from int) (keep int, chains []string, err error) {
		if from == len(s.lines) {
			return from, []string{before, chain}, nil
		}
		for keep = len(s.lines); keep > from; keep-- {
			if of := s.lines[keep-1]; of.step == step && of.chain == before {
				return keep, []string{chain}, nil
			}
		}
		return 0, nil, fmt.Errorf("the record has the chain %s there, which is not signed, and another is: the line was changed", before)
	})
}

// SignRewritten signs the last line of the record where no line of its step is signed: a signature ahead could not be written.
func (s *Signer) SignRewritten() error {
	step, chain, err := checkpoint.LastLine(s.dir)
	if err != nil || step < 0 {
		return err
	}
	return s.signLines(step, func(from int) (keep int, chains []string, err error) {
		if from < len(s.lines) {
			return len(s.lines), nil, nil
		}
		return from, []string{chain}, nil
	})
}

// signLines signs lines of a step. choose is told how many signatures there are of steps before, and returns how many stay, and the chains
// of the lines to be signed behind them. Where that cannot be written no signature of the step stays: the next signature stands for its
// line.
func (s *Signer) signLines(step int64, choose func(from int) (keep int, chains []string, err error)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("sign the record of step %d: %w", step, err)
		}
	}()
	f, err := os.OpenFile(filepath.Join(s.dir, SignatureFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := s.readLines(f); err != nil {
		return err
	}
	from := len(s.lines)
	for from > 0 && s.lines[from-1].step >= step {
		from--
	}
	keep, chains, err := choose(from)
	if err != nil {
		return err
	}
	at, end := s.endOf(keep), s.endOf(keep)
	lines, text := slices.Clone(s.lines[:keep]), []byte(nil)
	for _, chain := range chains {
		of := &Signature{Run: s.run, Step: step, Chain: chain, Key: s.public}
		if of.Bytes, err = s.pair.Sign(of.signedText()); err != nil {
			return err
		}
		line, err := encodeSignature(of)
		if err != nil {
			return err
		}
		end += int64(len(line))
		lines, text = append(lines, signedLine{step, chain, end}), append(text, line...)
	}
	if _, err := f.WriteAt(text, at); err != nil {
		s.lines = s.lines[:from]
		return errors.Join(err, f.Truncate(s.endOf(from)))
	}
	s.lines = lines
	if err := errors.Join(f.Truncate(end), f.Sync()); err != nil || at > 0 {
		return err
	}
	return checkpoint.SyncDir(s.dir) // the file may be new
}

// endOf is the end of the first n lines.
func (s *Signer) endOf(n int) int64 {
	if n == 0 {
		return 0
	}
	return s.lines[n-1].end
}

// readLines reads the lines of the file, once. A last line that was cut off is left out.
func (s *Signer) readLines(f *os.File) error {
	if s.read {
		return nil
	}
	err := scanSignatures(f, func(of *Signature, end int64) { s.lines = append(s.lines, signedLine{of.Step, of.Chain, end}) })
	if cut, ok := errors.AsType[*lineError](err); err != nil && (!ok || cut.whole) {
		return err
	}
	s.read = true
	return nil
}

// lineError is a line of signatures that does not decode.
type lineError struct {
	number int
	// whole is whether the line has its end. cut is whether it has no end and is else as it was written: its writer was cut off.
	whole, cut bool
	err        error
}

func (f *lineError) Error() string { return fmt.Sprintf("line %d: %v", f.number, f.err) }

// scanSignatures calls each with every whole line and the offset of its end. A line that does not decode ends it, with a *lineError.
func scanSignatures(file io.Reader, each func(of *Signature, end int64)) error {
	in, end := bufio.NewReader(file), int64(0)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		whole := err == nil
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		of := &Signature{}
		err = json.NewDecoder(bytes.NewReader(line)).Decode(of)
		// Bytes that decode to the same signature are not the bytes that were written.
		same, _ := encodeSignature(of)
		switch {
		case whole && err == nil && bytes.Equal(same, line):
			end += int64(len(line))
			each(of, end)
			continue
		case err == nil:
			err = errors.New("other bytes than were written")
		}
		cut := !whole && (errors.Is(err, io.ErrUnexpectedEOF) || bytes.Equal(same, append(line, '\n')))
		return &lineError{number, whole, cut, err}
	}
}

// Signed says which part of a record is signed.
type Signed struct {
	// Step is the newest step whose line is signed, and Keys are the public keys that have signed lines; -1 and none where nothing is signed.
	Step int64    `json:"step"`
	Keys []string `json:"keys"`
}

// lineOf names a line of a run's record.
type lineOf struct {
	run  string
	step int64
}

// checkSignatures compares the signatures of a store with the chains of its record, by step. trusted are the keys that may have signed;
// with none the keys are only named.
func (v *Verified) checkSignatures(run, dir string, chains map[int64]string, trusted []string) error {
	v.Signed = Signed{Step: -1, Keys: []string{}}
	f, err := os.Open(filepath.Join(dir, SignatureFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("verify signatures: %w", err)
	}
	defer f.Close()
	keys, absent := map[string]bool{}, int64(-1)
	matched, others := map[lineOf]bool{}, []*Signature{}
	fault := scanSignatures(f, func(of *Signature, _ int64) {
		chain, known := v.chainSigned(of, run, chains)
		switch err := of.verifySignature(); {
		case err != nil:
			v.addDamage(SignatureFile, of.Step, "a signature by "+of.Key, err.Error())
			return
		case len(trusted) > 0 && !slices.Contains(trusted, of.Key):
			v.addDamage(SignatureFile, of.Step, "a signature by "+strings.Join(trusted, " or "), "one by "+of.Key)
			return
		case of.Run != run && !v.forkedFrom(of.Run, of.Step):
			v.addDamage(SignatureFile, of.Step, "a signature of run "+run, "one of run "+of.Run)
			return
		case known && of.Chain != chain:
			others = append(others, of)
			return
		case !known: // it stands for a line that is not there, and for none before it
			absent = max(absent, of.Step)
			return
		}
		matched[lineOf{of.Run, of.Step}] = true
		v.Signed.Step = max(v.Signed.Step, of.Step)
		if !keys[of.Key] {
			keys[of.Key] = true
			v.Signed.Keys = append(v.Signed.Keys, of.Key)
		}
	})
	for _, of := range others { // a line that is written anew is signed before, and the line before it stays signed
		if chain, _ := v.chainSigned(of, run, chains); !matched[lineOf{of.Run, of.Step}] {
			v.addDamage(checkpoint.RecordFile, of.Step, "chain "+of.Chain+", which is signed", "chain "+chain)
		}
	}
	if absent > v.Signed.Step && absent != v.unwritten {
		v.Notes = append(v.Notes, fmt.Sprintf("%s: step %d is signed, and the record has no line of it: the run went back, or lines were removed",
			SignatureFile, absent))
	}
	if cut, ok := errors.AsType[*lineError](fault); ok && cut.cut {
		v.Notes = append(v.Notes, SignatureFile+": its last line was cut off: the next signature takes its place")
	} else if fault != nil {
		v.addDamage(SignatureFile, v.Signed.Step+1, "lines as they were written", fault.Error())
	}
	return nil
}

// chainSigned returns the chain that a signature must have: of the record's line or, where the run is a fork of the signature's run at that
// step, of the line that the fork took the place of. known is false where the record has neither.
func (v *Verified) chainSigned(of *Signature, run string, chains map[int64]string) (chain string, known bool) {
	for _, f := range v.Forks {
		if of.Run != run && f.Parent == of.Run && f.Step == of.Step {
			return f.Chain, true
		}
	}
	chain, known = chains[of.Step]
	return chain, known
}
