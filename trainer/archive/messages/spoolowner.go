package messages

import (
	"errors"
	"fmt"
)

// askedMark is a mark that the remote store of a Spool is to have before anything is sent there. With take it is written where there is
// none; claimed is whether an archive goes on by it.
type askedMark struct {
	id            string
	take, claimed bool
}

// Claim implements Store: the mark is that of the remote store. Where the remote store does not answer, the folder says whose it was, and
// the remote store is asked again before anything is sent there.
func (s *Spool) Claim(id string, take bool) (have string, err error) {
	have, err = s.remote.Claim(id, false)
	first := err == nil && have == "" && take
	if first {
		have, err = s.remote.Claim(id, true)
	}
	if err != nil {
		if here, _ := readMark(s.Folder, markName); here == id {
			s.log.Warn("whose archive the bucket has is believed as its spool noted it, since the bucket does not answer", "err", err)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.own, s.asks = false, &askedMark{id, take, true}
			s.noteChange()
			return here, nil
		}
		return have, err
	}
	if have != id {
		return have, nil
	}
	if err := s.Folder.Put(markName, []byte(have+"\n")); err != nil {
		return have, fmt.Errorf("note whose archive the bucket has: %w", err)
	}
	s.noteOwn(id)
	if first {
		s.warnUnlessExcludes()
	}
	return have, nil
}

// Excluder is a remote store that can say whether it refuses to write over an object.
type Excluder interface{ Excludes() (bool, error) }

// warnUnlessExcludes says where another run could have written over the mark that was just written.
func (s *Spool) warnUnlessExcludes() {
	e, ok := s.remote.(Excluder)
	if !ok {
		return
	}
	if excludes, err := e.Excludes(); err != nil || !excludes {
		s.log.Warn("the archive's bucket does not refuse to write over an object (If-None-Match): of two runs of this name that first start "+
			"at the same moment, one is not stopped at its start, but before it sends its next segment",
			"bucket", fmt.Sprint(s.remote), "err", err)
	}
}

// SendOwn has the segments of the folder sent before an archive is opened, where the remote store turns out to have the mark that the
// folder has. The caller holds the folder's lock.
func (s *Spool) SendOwn() error {
	mark, err := readMark(s.Folder, markName)
	if err != nil || mark == "" {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.own && s.asks == nil {
		s.asks = &askedMark{id: mark}
		s.noteChange()
	}
	return nil
}

// noteOwn notes that the remote store is of the run whose segments the folder has: they are sent.
func (s *Spool) noteOwn(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own, s.asks, s.owner = true, nil, id
	s.noteChange()
}

// checkMark returns an error that wraps ErrOtherRun where the remote store has another mark than that of the run: a store that does not
// refuse to write over an object let another run take it. Then nothing more is sent or removed there. A mark that is gone is written again.
//
// Invariant: a spool sends no segment and removes none where another run has taken the mark.
func (s *Spool) checkMark() error {
	s.mu.Lock()
	id := s.owner
	s.mu.Unlock()
	if id == "" { // no mark is asked for
		return nil
	}
	have, err := s.remote.Claim(id, true)
	if err != nil {
		return fmt.Errorf("find out whose archive it is: %w", err)
	}
	switch have {
	case id:
		return nil
	case "": // a store that reads late
		return errors.New("find out whose archive it is: the mark that was written is not there yet")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own, s.failure = false, nil // so that this is logged, whatever failed before
	return fmt.Errorf("%w: a run with the id %s began at the same moment as this run, which has the id %s, and has the archive now: give one "+
		"of them another name with run.name, or another place with trainer.archive.messages.dir; nothing more of this run is sent there, or "+
		"removed, and its segments stay in %s", ErrOtherRun, have, id, s.Folder.Dir)
}

// askMark asks the remote store for its mark. Nothing is sent to the archive of another run.
func (s *Spool) askMark(asks *askedMark) error {
	have, err := s.remote.Claim(asks.id, asks.take)
	if err == nil && have == "" && asks.claimed {
		var there []listed
		if there, _, err = listSegments(s.remote); err == nil && len(there) == 0 {
			have, err = s.remote.Claim(asks.id, true)
		}
	}
	if err != nil {
		return fmt.Errorf("find out whose archive it is: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asks != asks {
		return nil // the mark was claimed meanwhile
	}
	s.asks = nil
	s.noteChange()
	if s.own, s.owner = have == asks.id, asks.id; s.own || !asks.claimed {
		return nil // the archive that is opened next claims it
	}
	return fmt.Errorf("%w: it has segments, and the mark %q; the segments of this run, with the id %s, stay in %s until a start finds "+
		"the run's own archive at trainer.archive.messages.dir", ErrOtherRun, have, asks.id, s.Folder.Dir)
}
