package notebook

import "sync"

// swap holds the notes that were written last for the next episode that writes some. The zero value holds none.
type swap struct {
	mu    sync.Mutex
	notes string
	by    *page // whose they are
}

// exchange leaves the notes of an episode and returns what another left; "" where there is nothing, or where the episode left it itself.
func (s *swap) exchange(notes string, by *page) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.notes
	if s.by == by {
		left = ""
	}
	s.notes, s.by = notes, by
	return left
}
