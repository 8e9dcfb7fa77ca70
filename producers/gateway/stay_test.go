package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// place is a producer's gateway.
type place struct {
	*Server
	url string
}

// newPlace is the gateway of a producer that shares a secret with others.
func newPlace(t *testing.T, secret string) *place {
	t.Helper()
	cfg := DefaultConfig()
	ctx, stop := context.WithCancel(context.Background())
	s := NewServer(ctx, cfg, "sesame", slog.New(slog.DiscardHandler))
	s.stay.holdFor = 20 * time.Millisecond
	require.NoError(t, s.Stay([]byte(secret), nil))
	t.Cleanup(func() {
		stop()
		s.mu.Lock()
		left := slices.Collect(maps.Values(s.stay.open))
		s.mu.Unlock()
		for _, session := range left {
			s.Close(session)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return &place{s, s.URL()}
}

// open opens the session of an episode.
func (p *place) open(t *testing.T, k *kept) *Session {
	t.Helper()
	s, err := p.OpenLasting(t.Context(), spelling{}, &recorded{says: fromText}, 100, "e", k)
	require.NoError(t, err)
	return s
}

// answer is how a post was answered.
type answer struct {
	StatusCode int
	Header     http.Header
}

// send posts to a producer's gateway.
func (p *place) send(ctx context.Context, path, key string, body any) (answer, string, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer{}, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(data))
	if err != nil {
		return answer{}, "", err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header}, string(text), err
}

// post posts to a producer's gateway, which answers.
func (p *place) post(t *testing.T, path, key string, body any) (answer, string) {
	t.Helper()
	res, text, err := p.send(t.Context(), path, key, body)
	require.NoError(t, err)
	return res, text
}

// question is a request for the first turn.
func question() map[string]any {
	return map[string]any{"messages": []map[string]string{{"role": "user", "content": "one"}}}
}

func (p *place) ask(t *testing.T, key string) (answer, string) {
	t.Helper()
	return p.post(t, "/v1/chat/completions", key, question())
}

// claim has an agent come for the episode, and returns its key.
func (p *place) claim(t *testing.T, s *Session, within time.Duration) string {
	t.Helper()
	offered := make(chan error, 1)
	go func() { offered <- p.Offer(t.Context(), Offer{Episode: "e", APIKey: s.Key()}, within) }()
	res, text := p.post(t, "/episodes", "sesame", nil)
	require.Equal(t, http.StatusOK, res.StatusCode, text)
	require.NoError(t, <-offered)
	var o struct {
		Key string `json:"api_key"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	return o.Key
}

// What an agent is answered that knocks at a producer which does not have its episode, or where another agent has the episode. Clients try
// again at 503, and not at 401 and 410.
func TestWhoIsAnsweredWhatAtAnotherProducer(t *testing.T) {
	const secret = "the run's"
	first, second, stranger := newPlace(t, secret), newPlace(t, secret), newPlace(t, "another run's")
	notes := new(kept)
	session := first.open(t, notes)
	key := first.claim(t, session, 0)
	res, before := first.ask(t, key)
	require.Equal(t, http.StatusOK, res.StatusCode)

	res, _ = second.ask(t, key)
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, "its episode is elsewhere")
	require.Equal(t, "1", res.Header.Get("Retry-After"))
	for name, bad := range map[string]string{
		"cut": key[:len(key)-1], "longer": key + "A", "no key": "x", "of no producer": staying.newKey("e"), "a guess": keyMark + nameOf(key) + ".AAAA",
	} {
		res, _ = second.ask(t, bad)
		require.Equal(t, http.StatusUnauthorized, res.StatusCode, name)
	}
	res, _ = stranger.ask(t, key)
	require.Equal(t, http.StatusUnauthorized, res.StatusCode, "it is of another run")

	// The producer dies, and the ticket comes to the next.
	next := notes.nextProducer()
	session = second.open(t, next)
	res, again := second.post(t, "/v1/chat/completions", key, map[string]any{"messages": []map[string]string{{"role": "user", "content": "one"}}})
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.JSONEq(t, before, again, "the same answer, its id and time too")
	res, _ = second.ask(t, second.stay.keys.newKey("e"))
	require.Equal(t, http.StatusGone, res.StatusCode, "another agent has the episode")
	outcome := map[string]any{"answer": "north", "reward": 1}
	res, _ = second.post(t, "/v1/weir/finish", key, outcome)
	require.Equal(t, http.StatusOK, res.StatusCode)
	res, _ = second.post(t, "/v1/weir/finish", key, outcome)
	require.Equal(t, http.StatusOK, res.StatusCode, "its answer may have been lost")
	second.Close(session)
	for range 2 {
		res, _ = second.ask(t, key)
		require.Equal(t, http.StatusGone, res.StatusCode, "the episode is over")
	}
}

// Reader 11, finding 2: an agent whose episode its producer had cut off, or that another producer had ended, was told to ask again, for ever.
func TestAnAgentWhoseEpisodeIsOverElsewhereIsToldSo(t *testing.T) {
	for name, change := range map[string]struct {
		on  bool
		err error
		// later is whether the episode ends while the request waits.
		later bool
		want  int
	}{
		"another producer may go on": {on: true, want: http.StatusServiceUnavailable},
		"nobody knows":               {err: errors.New("no broker"), want: http.StatusServiceUnavailable},
		"it is over":                 {want: http.StatusGone},
		"it ends meanwhile":          {later: true, want: http.StatusGone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "s")
			session := p.open(t, new(kept))
			key := p.claim(t, session, 0)
			res, _ := p.ask(t, key)
			require.Equal(t, http.StatusOK, res.StatusCode)
			session.end(errors.New("the trajectory would be stale"))
			p.Close(session) // as a producer does that cuts an episode off
			var looks atomic.Int64
			require.NoError(t, p.Stay([]byte("s"), func(_ context.Context, episode string) (bool, error) {
				look := looks.Add(1)
				if episode != "e" {
					return true, nil
				}
				return change.on || change.later && look == 1, change.err
			}))
			p.mu.Lock()
			if change.later {
				p.stay.holdFor = time.Hour
			}
			p.mu.Unlock()
			res, _ = p.ask(t, key)
			require.Equal(t, change.want, res.StatusCode)
			res, _ = p.post(t, "/v1/weir/finish", key, map[string]any{"answer": "north"})
			require.Equal(t, change.want, res.StatusCode)
			res, _ = p.ask(t, key+"A")
			require.Equal(t, http.StatusUnauthorized, res.StatusCode)
		})
	}
}

// Reader 11, finding 4: the producer that came after a killed producer filled its places with new episodes, which no agent came for since all
// asked for the episodes that they had.
func TestAnEpisodeThatNobodyCameForMakesRoomForAgentsThatAreThere(t *testing.T) {
	p := newPlace(t, "s")
	session := p.open(t, new(kept))
	offered := make(chan error, 1)
	go func() { offered <- p.Offer(t.Context(), Offer{Episode: "e", APIKey: session.Key()}, 0) }()
	res, _ := p.ask(t, p.stay.keys.newKey("another"))
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.ErrorIs(t, <-offered, ErrMakesRoom)

	// No agent asks for an episode that is elsewhere: it waits on.
	p = newPlace(t, "s")
	session = p.open(t, new(kept))
	waiting, stop := context.WithTimeout(t.Context(), 2*unclaimedFor+unclaimedFor/2)
	defer stop()
	require.ErrorIs(t, p.Offer(waiting, Offer{Episode: "e", APIKey: session.Key()}, 0), context.DeadlineExceeded)
}

// Reader 11, finding 5: a limit that had refused the agent was forgotten by the next producer, and the episode ended as if no limit had.
func TestALimitThatRefusedTheAgentIsKnownToTheNextProducer(t *testing.T) {
	p := newPlace(t, "s")
	open := func(k *kept) *Session {
		s, err := p.OpenLasting(t.Context(), spelling{}, &recorded{says: fromText}, 1, "e", k)
		require.NoError(t, err)
		return s
	}
	other := map[string]any{"messages": []map[string]string{{"role": "user", "content": "two"}}}
	notes := new(kept)
	session := open(notes)
	key := p.claim(t, session, 0)
	res, _ := p.ask(t, key)
	require.Equal(t, http.StatusOK, res.StatusCode)
	for range 3 {
		res, _ = p.post(t, "/v1/chat/completions", key, other)
		require.Equal(t, http.StatusForbidden, res.StatusCode)
	}
	require.NoError(t, notes.StoreNotes(t.Context()))
	p.Close(session)
	session = open(notes.nextProducer())
	for range mostTurnRefusals - 3 {
		res, _ = p.post(t, "/v1/chat/completions", key, other)
		require.Equal(t, http.StatusForbidden, res.StatusCode)
	}
	require.Equal(t, schemas.StopTurns, session.Limit())
	res, _ = p.post(t, "/v1/chat/completions", key, other)
	require.Equal(t, http.StatusGone, res.StatusCode, "so many refusals end the episode, whichever producer refused")
}

// A request that comes before its episode waits for it.
func TestARequestThatComesBeforeItsEpisodeWaits(t *testing.T) {
	first, second := newPlace(t, "s"), newPlace(t, "s")
	second.stay.holdFor = time.Hour
	notes := new(kept)
	key := first.claim(t, first.open(t, notes), 0)
	answered := make(chan answer, 1)
	failed := make(chan error, 1)
	go func() {
		res, _, err := second.send(t.Context(), "/v1/chat/completions", key, question())
		answered <- res
		failed <- err
	}()
	require.Eventually(t, func() bool {
		second.mu.Lock()
		defer second.mu.Unlock()
		return second.stay.held == 1
	}, time.Minute, time.Millisecond)
	second.open(t, notes.nextProducer())
	require.Equal(t, http.StatusOK, (<-answered).StatusCode)
	require.NoError(t, <-failed)
}

// The agent that had the episode does not come back in time: the next agent that comes has it, and the earlier agent is refused from then on,
// at later producers too. An agent that comes back before anybody else came goes on.
func TestAnEpisodeHasOneAgent(t *testing.T) {
	p := newPlace(t, "s")
	notes := new(kept)
	session := p.open(t, notes)
	early := p.claim(t, session, 0)
	p.Close(session)
	notes = notes.nextProducer()
	session = p.open(t, notes)
	late := p.claim(t, session, time.Millisecond)
	require.NotEqual(t, early, late)
	res, _ := p.ask(t, early)
	require.Equal(t, http.StatusGone, res.StatusCode)
	res, _ = p.ask(t, late)
	require.Equal(t, http.StatusOK, res.StatusCode)
	p.Close(session)
	session = p.open(t, notes.nextProducer())
	res, _ = p.ask(t, early)
	require.Equal(t, http.StatusGone, res.StatusCode)

	offered := make(chan error, 1)
	go func() { offered <- p.Offer(t.Context(), Offer{Episode: "e", APIKey: session.Key()}, 0) }()
	res, _ = p.ask(t, late)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.NoError(t, <-offered, "the agent is back: nobody else is offered the episode")
	require.ErrorIs(t, session.claimKey(t.Context()), errReturned)
	p.Close(session)
}

func TestTooManyRequestsThatWaitAreRefused(t *testing.T) {
	p := newPlace(t, "s")
	p.stay.held, p.stay.holdFor = mostHeld, time.Hour
	res, text := p.ask(t, p.stay.keys.newKey("e"))
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, fmt.Sprint(text))
}

// Finding 12b.4: the limit of an episode whose agent came late is no deadline of its context, and ends the episode for good all the same.
func TestAnEpisodeWhoseTimeHasPassedIsOver(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	s := newSession(ctx, spelling{}, &recorded{says: fromText}, 1)
	require.False(t, s.isOver())
	end(fmt.Errorf("its time has passed: %w", context.DeadlineExceeded))
	require.True(t, s.isOver())
}

// Finding 12b.7: an agent that had asked at a producer before, and whose episode came there meanwhile, counted no more when it asked again.
func TestAnAgentKnocksAgainAtTheSameProducer(t *testing.T) {
	p := newPlace(t, "the run's")
	key := p.stay.keys.newKey("e")
	p.noteKnock(key)
	require.True(t, p.agentsKnock())
	p.stay.began[key], p.stay.knocked = time.Now().Add(-time.Hour), time.Time{}
	p.noteKnock(key)
	require.False(t, p.agentsKnock(), "its episode did not come")
	p.Close(p.open(t, new(kept)))
	p.noteKnock(key)
	require.True(t, p.agentsKnock())
}
