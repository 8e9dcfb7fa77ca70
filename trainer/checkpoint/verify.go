package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Verification is what a reading of a store has found.
type Verification struct {
	// Records, Batches, Checkpoints and Files count what was read: lines of the record, kept batches, checkpoints, and the files in them
	// and in the frozen reference policy. Gone counts the batches that were kept and have been removed since, to make room.
	Records, Batches, Gone, Checkpoints, Files int
	// Bytes is the size of all that.
	Bytes int64
	// Unwritten is the step whose checkpoint is there and whose line is not written whole yet; -1 for none.
	Unwritten int64
	// First and Last are the steps that the record begins and ends with; -1 for none. Chain is that of the last line.
	First, Last int64
	Chain       string
	// Damage lists what is not as it was written, Notes what could not be judged, a sentence each.
	Damage []Found
	Notes  []string
}

// Found is a damage, with the step whose record, batch or checkpoint it is in; -1 where that is not known.
type Found struct { //nolint:errname // it is a finding, as Damage is
	Step int64
	*Damage
}

// verifier is a reading of a store.
type verifier struct {
	dir string
	Verification
	// results has what the record says of the steps that checkpoints are of, and chains their lines' chains.
	results map[int64]*Result
	chains  map[int64]string
	// end is the size of the record's whole lines.
	end int64
	// oldest is the oldest step whose batch is kept.
	oldest int64
	// whole has the steps of the checkpoints without damage.
	whole map[int64]bool
}

// Verify reads every byte of a store that a record stands for: the lines of the record against their chain, the kept batches against the
// record, the checkpoints against their manifests and the record, the reference policy against its manifest. Each is called with the
// records and may be nil. A trainer may go on with the store meanwhile.
//
// Invariant: a process that is killed at any write of a run leaves a folder in which weir audit --verify finds no damage.
//
// Invariant: a disk that is full at any write of a run leaves a folder in which weir audit --verify finds no damage.
func Verify(dir string, each func(*Record)) (*Verification, error) {
	v := &verifier{dir: dir, results: map[int64]*Result{}, chains: map[int64]string{}, whole: map[int64]bool{}}
	v.First, v.Last, v.Unwritten = -1, -1, -1
	list, err := List(dir)
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", dir, err)
	}
	if len(list.batches) > 0 {
		v.oldest = list.batches[0]
	}
	if err := v.readRecords(list, each); err != nil {
		return nil, fmt.Errorf("verify %s: %w", dir, err)
	}
	if err := v.checkEnd(list.steps); err != nil {
		return nil, fmt.Errorf("verify %s: %w", dir, err)
	}
	for _, step := range slices.Backward(list.steps) {
		if err := v.checkFolder(StepDir(dir, step), step); err != nil {
			return nil, fmt.Errorf("verify %s: %w", dir, err)
		}
	}
	for _, step := range list.passed {
		v.Notes = append(v.Notes, fmt.Sprintf("the checkpoint of step %d was passed over by a start, and the run went back", step))
		if err := v.checkFolder(StepDir(dir, step), step); err != nil {
			return nil, fmt.Errorf("verify %s: %w", dir, err)
		}
	}
	if err := v.checkLost(list); err != nil {
		return nil, fmt.Errorf("verify %s: %w", dir, err)
	}
	if reference := ReferenceDir(dir); reference != "" {
		if _, err := os.Stat(filepath.Join(reference, manifestFile)); err != nil {
			v.Notes = append(v.Notes, "the reference policy was put there by hand, and has no hashes yet")
		} else if err := v.checkFolder(reference, 0); err != nil {
			return nil, fmt.Errorf("verify %s: %w", dir, err)
		}
	}
	return &v.Verification, nil
}

func (v *verifier) addDamage(step int64, d *Damage) { v.Damage = append(v.Damage, Found{step, d}) }

// readRecords reads the record and the batches that its lines name.
func (v *verifier) readRecords(list *Listing, each func(*Record)) error {
	f, err := os.Open(filepath.Join(v.dir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) && !v.isBegun(list) {
		v.Notes = append(v.Notes, "no line of the record is written yet: the run was killed before its first, or there is none")
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		v.addDamage(-1, &Damage{v.dir, RecordFile, "the record of steps", "no such file"})
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var failed error
	damaged := int64(0)
	err = scanLines(f, func(number int, r *Record, end int64, fault error) bool {
		v.end = end
		if r == nil {
			v.addDamage(v.Last+1, &Damage{v.dir, RecordFile, fmt.Sprintf("line %d as it was written", number), fault.Error()})
			damaged++
			return true
		}
		switch {
		case fault != nil:
			want := fmt.Sprintf("line %d, step %d, as it was written after the line before it", number, r.Step)
			v.addDamage(r.Step, &Damage{v.dir, RecordFile, want, fault.Error()})
		case v.Records > 0 && r.Step != v.Last+1+damaged:
			want := fmt.Sprintf("step %d at line %d", v.Last+1+damaged, number)
			v.addDamage(r.Step, &Damage{v.dir, RecordFile, want, fmt.Sprintf("step %d", r.Step)})
		}
		if v.Records++; v.First < 0 {
			v.First = r.Step
		}
		v.Last, v.Chain, damaged = r.Step, r.Chain, 0
		if slices.Contains(list.steps, r.Step) {
			v.results[r.Step], v.chains[r.Step] = r.Result, r.Chain
		}
		if each != nil {
			each(r)
		}
		failed = v.checkBatch(r)
		return failed == nil
	})
	v.Bytes += v.end
	return errors.Join(err, failed)
}

// checkBatch compares the batch of a step with its record.
func (v *verifier) checkBatch(r *Record) error {
	if r.Batch == nil {
		return nil
	}
	path := BatchPath(v.dir, r.Step)
	name := filepath.Join(batchesDir, filepath.Base(path))
	have, err := describeFile(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		needed, err := isBatchNeeded(v.dir, r.Step)
		if err != nil || needed {
			want := fmt.Sprintf("SHA-256 %s, which a start from the newest checkpoint needs", r.Batch.SHA256)
			v.addDamage(r.Step, &Damage{v.dir, name, want, "no such file"})
			return err
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && (r.Step < v.oldest || v.oldest == 0):
		v.Gone++
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if now, err := KeptSteps(v.dir); err == nil && len(now) > 0 && r.Step < now[0] {
			v.Gone++ // removed since
			return nil
		}
		v.addDamage(r.Step, &Damage{v.dir, name, "SHA-256 " + r.Batch.SHA256, "no such file"})
		return nil
	case err != nil:
		return err
	case have.SHA256 != r.Batch.SHA256:
		v.addDamage(r.Step, &Damage{v.dir, name, "SHA-256 " + r.Batch.SHA256, "SHA-256 " + have.SHA256})
	}
	v.Batches++
	v.Bytes += have.Size
	return nil
}

// checkEnd compares the end of the record with the newest checkpoint's own copy of its line. What a crash has cut off is no damage: the
// next start writes it again.
func (v *verifier) checkEnd(steps []int64) error {
	info, err := os.Stat(filepath.Join(v.dir, RecordFile))
	if err != nil || len(steps) == 0 {
		return nil //nolint:nilerr // a record that is gone is among the damage
	}
	var newest Record
	if readJSON(filepath.Join(StepDir(v.dir, steps[0]), recordFile), &newest) != nil {
		return nil //nolint:nilerr // it is among the damage of its folder
	}
	rest := make([]byte, max(0, info.Size()-v.end))
	if len(rest) > 0 {
		f, err := os.Open(filepath.Join(v.dir, RecordFile))
		if err != nil {
			return err
		}
		_, err = f.ReadAt(rest, v.end)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	missing := newest.Step == v.Last+1
	if at := v.placeOf(steps[0]); at != nil {
		missing = newest.Step > v.Last && at.Offset == v.end && at.Chain == v.Chain
	}
	line, err := newest.encodeLine(v.Chain)
	if err != nil {
		return err
	}
	switch {
	case len(rest) == 0 && !missing:
	case missing && bytes.HasPrefix(line, rest):
		v.Unwritten = newest.Step
		v.Notes = append(v.Notes, fmt.Sprintf("the line of step %d is not written whole yet: the next start writes it", newest.Step))
	case len(rest) > 0:
		want := fmt.Sprintf("a whole line of step %d", v.Last+1)
		v.addDamage(v.Last+1, &Damage{v.dir, RecordFile, want, fmt.Sprintf("%d other bytes", len(rest))})
	}
	return nil
}

// placeOf is where the record stood before the line of a step's checkpoint; nil where that is not known.
func (v *verifier) placeOf(step int64) *Tail {
	var state State
	if readJSON(filepath.Join(StepDir(v.dir, step), stateFile), &state) != nil {
		return nil // it is among the damage of its folder
	}
	return state.Records
}

// isBegun reports whether a store without a record has anything that is written after a line: a run that is killed before its first line
// leaves at most the checkpoint that this line is of.
func (v *verifier) isBegun(list *Listing) bool {
	if len(list.batches) > 0 || len(list.steps) > 1 {
		return true
	}
	if len(list.steps) == 1 {
		at := v.placeOf(list.steps[0])
		return at == nil || at.Offset > 0
	}
	return false
}

// checkLost looks for lines that are gone from the record: after its end, or before the newest whole checkpoint, as a start does.
func (v *verifier) checkLost(list *Listing) error {
	if _, err := os.Stat(filepath.Join(v.dir, RecordFile)); err != nil {
		return nil //nolint:nilerr // a record that is gone is among the damage
	}
	lost, err := list.lostAfter(v.Last, func(step int64) (bool, error) { return v.whole[step], nil })
	if err != nil {
		return err
	}
	if lost != nil {
		want := fmt.Sprintf("the lines of %s, after which %s was written", lost.Steps(), lost.By)
		v.addDamage(lost.First, &Damage{v.dir, RecordFile, want, "none of them: they were removed, or the run went back behind them"})
		return nil
	}
	known := slices.ContainsFunc(v.Damage, func(d Found) bool { return d.File == RecordFile })
	if at := slices.IndexFunc(list.steps, func(step int64) bool { return v.whole[step] }); at >= 0 && !known {
		step := list.steps[at]
		want, have, err := findLackOf(v.dir, step)
		if err != nil {
			return err
		}
		if have != "" {
			v.addDamage(step, &Damage{v.dir, RecordFile, fmt.Sprintf("the %d bytes that the checkpoint goes on from", want.Offset), have})
		}
	}
	if newest := list.batchesAfter(max(v.Last, v.Unwritten) + 1); newest >= 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s: the batch of step %d is kept, and the record ends with step %d: the run went back, or lines "+
			"were removed and the checkpoints after them", RecordFile, newest, v.Last))
	}
	return nil
}

// checkFolder compares the files of a checkpoint, or of the reference policy, with their manifest, and a checkpoint with the record.
func (v *verifier) checkFolder(dir string, step int64) error {
	damage, m, err := verifyFiles(dir, step)
	if _, gone := os.Stat(dir); errors.Is(gone, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	for _, d := range damage {
		v.addDamage(step, d)
	}
	hashes := map[string]string{}
	if m != nil {
		for _, f := range m.Files {
			hashes[f.Name] = f.SHA256
			v.Bytes += f.Size
		}
		v.Files += len(m.Files)
	}
	chain, recorded := v.chains[step]
	if dir == filepath.Join(v.dir, referenceDir) {
		return nil
	}
	v.whole[step] = len(damage) == 0
	if v.Checkpoints++; !recorded || len(damage) > 0 {
		return nil
	}
	if r := v.results[step]; r != nil {
		for name, want := range r.Files {
			if hashes[name] != want {
				v.addDamage(step, &Damage{dir, name, "SHA-256 " + want + " of the record", "SHA-256 " + hashes[name]})
			}
		}
	}
	var own Record
	if err := readJSON(filepath.Join(dir, recordFile), &own); err != nil || own.Chain == chain {
		return nil //nolint:nilerr // it is among the damage of its folder
	}
	var state State
	if err := readJSON(filepath.Join(dir, stateFile), &state); err == nil && step == v.Last && state.Replaces == chain {
		v.Notes = append(v.Notes,
			fmt.Sprintf("the line of step %d is not written anew yet, as its checkpoint is: the next start writes it", step))
		return nil
	}
	v.addDamage(step, &Damage{v.dir, RecordFile, fmt.Sprintf("chain %s at step %d", own.Chain, step), "chain " + chain})
	return nil
}

// verifyFiles compares each file of a folder with its manifest, which is nil where it cannot be read.
func verifyFiles(dir string, step int64) (damage []*Damage, m *manifest, err error) {
	data, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err == nil && json.Unmarshal(data, &m) != nil {
		m = nil
	}
	whole := verifyFolder(dir, step)
	first, ok := errors.AsType[*Damage](whole)
	if !ok {
		return nil, m, whole
	}
	if m != nil {
		for _, f := range m.Files {
			if d, ok := errors.AsType[*Damage](f.verifyFile(dir)); ok && filepath.IsLocal(f.Name) {
				damage = append(damage, d)
			}
		}
	}
	if len(damage) == 0 {
		damage = append(damage, first)
	}
	return damage, m, nil
}
