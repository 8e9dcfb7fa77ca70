package notebook

import "sync"

// swap holds the notes that were written last for the next episode that writes some. The zero value holds none.
type swap struct {
	mu    sync.Mutex
	notes string
	by    *page // whose they are
}

// exchangeNotes leaves the notes of an episode and returns the notes that another episode left; "" where there are none.
func (s *swap) exchangeNotes(notes string, by *page) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.notes
	if s.by == by {
		left = ""
	}
	s.notes, s.by = notes, by
	return left
}
