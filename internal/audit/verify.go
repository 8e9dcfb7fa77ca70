package audit

import (
	"fmt"
	"path/filepath"

	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Verified is the result of a verification of a run's files. Damage is empty where every byte is as it was written.
type Verified struct {
	// Records, Batches, Checkpoints, Files, Segments and Bytes count what was read; BatchesGone the batches that were removed to make room.
	Records     int   `json:"records"`
	Batches     int   `json:"batches"`
	BatchesGone int   `json:"batches_gone"`
	Checkpoints int   `json:"checkpoints"`
	Files       int   `json:"files"`
	Segments    int   `json:"archive_segments"`
	Bytes       int64 `json:"bytes"`
	// MessageSegments and Messages count the archive's messages of the stream.
	MessageSegments int `json:"message_segments"`
	Messages        int `json:"messages"`
	// Signed says which part of the record is signed by a trainer's key.
	Signed Signed `json:"signed"`
	// Forks are the runs that the run was forked from, the oldest first.
	Forks []Forked `json:"forks"`
	// Damage lists every byte, line and file that is not as it was written, Notes what could not be judged.
	Damage []Damaged `json:"damage"`
	Notes  []string  `json:"notes"`

	unwritten int64 // the step whose line is not written whole yet; -1 for none
}

// Forked is a fork in a run's past.
type Forked struct {
	Parent string `json:"parent"`
	Step   int64  `json:"step"`
	// Chain is that of the step's line in the parent's record.
	Chain string `json:"chain"`
}

// Damaged is a file that is not as it was written.
type Damaged struct {
	// File is its path below the folder of checkpoints, Step the step that it is of; -1 where that is not known.
	File string `json:"file"`
	Step int64  `json:"step"`
	Want string `json:"want"`
	Have string `json:"have"`
}

// String is the damage in words.
func (d Damaged) String() string {
	at := ""
	if d.Step >= 0 {
		at = fmt.Sprintf(", step %d", d.Step)
	}
	return fmt.Sprintf("%s%s: want %s, have %s", d.File, at, d.Want, d.Have)
}

// Err is nil where every byte is as it was written.
func (v *Verified) Err() error {
	if len(v.Damage) == 0 {
		return nil
	}
	return fmt.Errorf("verify: %d of the files, lines and signatures are not as they were written", len(v.Damage))
}

func (v *Verified) addDamage(file string, step int64, want, have string) {
	v.Damage = append(v.Damage, Damaged{file, step, want, have})
}

// forkedFrom reports whether a step was done by a run that the run was forked from.
func (v *Verified) forkedFrom(run string, step int64) bool {
	for _, f := range v.Forks {
		if f.Parent == run && step <= f.Step {
			return true
		}
	}
	return false
}

// Verify reads every byte that a run's folder of checkpoints keeps of its past, and compares it with the hashes that were written with it.
// trusted are the public keys that may have signed the record; none trusts any.
func Verify(run, dir string, trusted []string) (*Verified, error) {
	chains := map[int64]string{}
	out := &Verified{Forks: []Forked{}, Damage: []Damaged{}, Notes: []string{}}
	store, err := checkpoint.Verify(dir, func(r *checkpoint.Record) {
		chains[r.Step] = r.Chain
		if f := r.Forked; f != nil {
			out.Forks = append(out.Forks, Forked{f.Parent, r.Step, f.Chain})
		}
	})
	if err != nil {
		return nil, err
	}
	out.Records, out.Batches, out.BatchesGone, out.Checkpoints = store.Records, store.Batches, store.Gone, store.Checkpoints
	out.Files, out.Bytes, out.Notes = store.Files, store.Bytes, append(out.Notes, store.Notes...)
	out.unwritten = store.Unwritten
	for _, d := range store.Damage {
		file := filepath.Join(d.Dir, d.File)
		if below, err := filepath.Rel(dir, file); err == nil {
			file = below
		}
		out.addDamage(file, d.Step, d.Want, d.Have)
	}
	segments, err := archive.Verify(filepath.Join(dir, archive.Folder))
	if err != nil {
		return nil, err
	}
	out.Segments = segments.Segments
	out.Bytes += segments.Bytes
	for _, f := range segments.Faults {
		out.addDamage(filepath.Join(archive.Folder, f.File), f.Step, f.Want, f.Have)
	}
	for _, name := range segments.Open {
		out.Notes = append(out.Notes, fmt.Sprintf("%s: no seal covers its end: its writer was cut off or is at work",
			filepath.Join(archive.Folder, name)))
	}
	if last := lastStep(chains); segments.Segments > 0 && len(segments.Faults) == 0 && segments.Last < last {
		out.Notes = append(out.Notes, fmt.Sprintf("%s: its last seal is of step %d, and the record goes on to step %d: its end is gone, "+
			"or nothing was kept since", archive.Folder, segments.Last, last))
	}
	if store.First > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("the record begins with step %d, whose line nothing before it stands for", store.First))
	}
	return out, out.checkSignatures(run, dir, chains, trusted)
}

// lastStep is the newest step of a record; -1 where it has none.
func lastStep(chains map[int64]string) int64 {
	last := int64(-1)
	for step := range chains {
		last = max(last, step)
	}
	return last
}

// VerifyMessages reads every byte of the stream's messages that the run keeps. dir is the run's folder of checkpoints, which says how far
// the stream was purged.
func (v *Verified) VerifyMessages(store messages.Segments, dir string) error {
	found, err := messages.Verify(store)
	if err != nil {
		return fmt.Errorf("verify the archive of messages: %w", err)
	}
	v.MessageSegments, v.Messages = found.Segments, found.Messages
	v.Bytes += found.Bytes
	v.Notes = append(v.Notes, found.Notes...)
	for _, d := range found.Damage {
		v.addDamage(d.Segment, -1, d.Want, d.Have)
	}
	created, upTo, err := checkpoint.ReadPurged(dir)
	if err != nil {
		return err
	}
	if last := found.LastOf(created); last > 0 && last < upTo {
		v.Notes = append(v.Notes, fmt.Sprintf("messages %d to %d of the stream were purged, and no segment of the archive has them: "+
			"the newest segment is gone, or they could not be kept", last+1, upTo))
	}
	return nil
}
