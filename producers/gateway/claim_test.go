package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hasty is a client that leaves as soon as it has the answer.
type hasty struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
}

func (h hasty) FlushError() error {
	h.leave()
	return nil
}

// An agent that closes its connection as soon as it has read the offer has the episode: the episode was given to another agent too, and both
// wrote into it.
func TestAnAgentThatHangsUpWithItsOfferHasTheEpisode(t *testing.T) {
	t.Parallel()
	s := NewServer(t.Context(), DefaultConfig(), "key", slog.New(slog.DiscardHandler))
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		r := httptest.NewRequest(http.MethodPost, "/episodes", nil).WithContext(ctx)
		r.Header.Set("Authorization", "Bearer key")
		s.Handler().ServeHTTP(hasty{httptest.NewRecorder(), leave}, r)
	}()
	waiting, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	require.NoError(t, s.Offer(waiting, Offer{Episode: "e"}))
}
