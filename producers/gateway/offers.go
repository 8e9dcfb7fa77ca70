package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/openai"
)

// Offer describes an episode to an agent outside: where to ask, and the task.
type Offer struct {
	// BaseURL is for OpenAI's clients, AnthropicURL for Anthropic's; APIKey is for both.
	BaseURL      string `json:"base_url"`
	AnthropicURL string `json:"anthropic_base_url"`
	APIKey       string `json:"api_key"`
	// Episode names the episode; Prompt is the question to the agent.
	Episode string `json:"episode"`
	Prompt  string `json:"prompt"`
	// PromptID, Task and Source say where the prompt is from.
	PromptID string `json:"prompt_id"`
	Task     string `json:"task"`
	Source   string `json:"source"`
	// Seed is the episode's own.
	Seed uint64 `json:"seed"`
	// World is the data that the task gives its tools, as JSON, for an agent that brings tools of its own; nil is nothing. It never holds
	// the answers.
	World rawJSON `json:"world"`
	// Timeout is the seconds that the episode may take; 0 is no bound.
	Timeout float64 `json:"timeout_s"`
}

// rawJSON is JSON as it is, null where there is none.
type rawJSON []byte

// MarshalJSON writes it as it is.
func (r rawJSON) MarshalJSON() ([]byte, error) {
	if len(r) == 0 {
		return []byte("null"), nil
	}
	return r, nil
}

// offers are episodes that wait for an agent to come for them.
type offers struct {
	key     [sha256.Size]byte
	waiting chan offered
}

// offered is an offer and whether somebody took it.
type offered struct {
	offer Offer
	taken chan<- struct{}
	claim func(ctx context.Context) error
}

// mostOfferBody bounds the body of a request for an episode, which nothing is read from.
const mostOfferBody = 64 << 10

// claimWait is how long a request for an episode waits for an episode.
const claimWait = 30 * time.Second

// ErrMakesRoom is returned where an episode that no agent has come for makes room for the episodes of agents that are there.
var ErrMakesRoom = errors.New("no agent has come for the episode, and agents wait here for other episodes")

func newOffers(key string) *offers {
	return &offers{key: sha256.Sum256([]byte("Bearer " + key)), waiting: make(chan offered)}
}

// Offer waits until an agent comes for an episode. The time in which an agent may ask for nothing begins again then. An episode that an
// agent had at a producer before waits first for that agent, for as long as within says; no part of its time limit passes meanwhile. It
// fails with [ErrMakesRoom] where nobody comes while agents ask whose episodes are on their way: they would wait for each other.
func (s *Server) Offer(ctx context.Context, o Offer, within time.Duration) error {
	s.mu.Lock()
	session := s.sessions[o.APIKey]
	s.mu.Unlock()
	session.setOffered(true)
	switch back, err := session.awaitFormer(ctx, within); {
	case err != nil:
		return err
	case back:
		session.setOffered(false)
		return nil
	}
	session.setOffered(true) // the time in which nobody may come begins again
	taken := make(chan struct{}, 1)
	unclaimed := time.NewTicker(unclaimedFor)
	defer unclaimed.Stop()
	for {
		select {
		case <-unclaimed.C:
			if s.agentsKnock() {
				return ErrMakesRoom
			}
		case <-session.hasReturned():
			session.setOffered(false)
			return nil
		case s.offers.waiting <- offered{o, taken, session.claimKey}:
			// The agent may be gone before it was told.
			select {
			case _, ok := <-taken:
				if ok {
					session.setOffered(false)
					return nil
				}
				taken = make(chan struct{}, 1)
			case <-ctx.Done():
				return fmt.Errorf("wait for an agent to come for the episode: %w", context.Cause(ctx))
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for an agent to come for the episode: %w", context.Cause(ctx))
		}
	}
}

// serveOffer gives an episode to an agent that asks; 204 when none came while it waited.
func (o *offers) serveOffer(w http.ResponseWriter, r *http.Request) {
	got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	if subtle.ConstantTimeCompare(got[:], o.key[:]) != 1 {
		openai.WriteError(w, openai.Refusal(http.StatusUnauthorized, "authentication_error", "invalid_api_key",
			"episodes are given to those who send the agent's key: Authorization: Bearer <key>"))
		return
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "" && kind != "application/json" {
		openai.WriteError(w, openai.Refusal(http.StatusUnsupportedMediaType, "invalid_request_error", "content_type", "the body is %.80q: send none", kind))
		return
	}
	// A client that leaves is seen only when its body has been read.
	if _, err := io.Copy(io.Discard, openai.NewTimedBody(w, r, mostOfferBody)); err != nil {
		openai.WriteError(w, openai.BadRequest("invalid_body", "read the body: %v: send none", err))
		return
	}
	timer := time.NewTimer(claimWait)
	defer timer.Stop()
	for given := false; !given; {
		select {
		case one := <-o.waiting:
			given = one.giveTo(w, r)
		case <-timer.C:
			w.WriteHeader(http.StatusNoContent)
			return
		case <-r.Context().Done():
			return
		}
	}
}

// giveTo gives the episode to an agent that has asked for an episode; false is that the agent may be given another.
func (o offered) giveTo(w http.ResponseWriter, r *http.Request) bool {
	if err := o.claim(r.Context()); err != nil {
		close(o.taken)
		return false
	}
	// An agent that has the offer may leave at once: only its end before that gives the episode to another.
	err := r.Context().Err()
	if err == nil {
		err = writeWhole(w, o.offer)
	}
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		close(o.taken)
		return true
	}
	o.taken <- struct{}{}
	return true
}
