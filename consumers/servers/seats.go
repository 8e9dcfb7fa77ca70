package servers

import "container/list"

// maxEpisodes bounds the episodes whose server is remembered.
const maxEpisodes = 1 << 16

// seats remember where an episode's cache is: the server, and the epoch of its weights. The longest unused seat goes first.
type seats struct {
	most  int
	order *list.List // of *seat, the newest first
	by    map[string]*list.Element
}

// seat is where an episode's cache is.
type seat struct {
	episode string
	server  *server
	epoch   *epoch
}

func newSeats(most int) seats {
	return seats{most: most, order: list.New(), by: map[string]*list.Element{}}
}

// seatOf is an episode's seat, nil if it has none.
func (s *seats) seatOf(episode string) *seat {
	if e := s.by[episode]; e != nil {
		return e.Value.(*seat) //nolint:forcetypeassert // the list holds nothing else
	}
	return nil
}

// seatEpisode puts an episode at a server.
func (s *seats) seatEpisode(episode string, at *server, of *epoch) {
	if episode == "" {
		return
	}
	s.forgetEpisode(episode)
	s.by[episode] = s.order.PushFront(&seat{episode, at, of})
	if s.order.Len() > s.most {
		s.forgetEpisode(s.order.Back().Value.(*seat).episode) //nolint:forcetypeassert // the list holds nothing else
	}
}

// forgetEpisode takes an episode's seat away.
func (s *seats) forgetEpisode(episode string) {
	if e := s.by[episode]; e != nil {
		s.order.Remove(e)
		delete(s.by, episode)
	}
}

// countIdle counts the seats.
func (s *seats) countIdle() int { return len(s.by) }
