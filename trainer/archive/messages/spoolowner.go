package messages

import "fmt"

// askedMark is a mark that the remote store of a Spool is to have before anything is sent there. With take it is written where there is
// none; claimed is whether an archive goes on by it.
type askedMark struct {
	id            string
	take, claimed bool
}

// Claim implements Store: the mark is that of the remote store. Where the remote store does not answer, the folder says whose it was, and
// the remote store is asked again before anything is sent there.
func (s *Spool) Claim(id string, take bool) (have string, err error) {
	have, err = s.remote.Claim(id, take)
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
	s.noteOwn()
	return have, nil
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
func (s *Spool) noteOwn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own, s.asks = true, nil
	s.noteChange()
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
	if s.own = have == asks.id; s.own || !asks.claimed {
		return nil // the archive that is opened next claims it
	}
	return fmt.Errorf("%w: it has segments, and the mark %q; the segments of this run, with the id %s, stay in %s until a start finds "+
		"the run's own archive at trainer.archive.messages.dir", ErrOtherRun, have, asks.id, s.Folder.Dir)
}
