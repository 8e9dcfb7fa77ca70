package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
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
	require.NoError(t, s.Offer(waiting, Offer{Episode: "e"}, 0))
}

// An agent that leaves while it waits gets no episode, also where its request had a body, as that of the package for Python has: the server
// does not see that a client has left whose body it has not read, and the episode waited for nobody.
func TestAnAgentThatLeftGetsNoEpisode(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{}"} {
		s := NewServer(t.Context(), DefaultConfig(), "key", slog.New(slog.DiscardHandler))
		ended := make(chan struct{})
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			s.Handler().ServeHTTP(w, r)
		}))
		waits, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		r, err := http.NewRequestWithContext(waits, http.MethodPost, web.URL+"/episodes", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer key")
		_, err = http.DefaultClient.Do(r) //nolint:bodyclose // there is no answer
		require.Error(t, err)
		leave()
		select {
		case <-ended:
		case <-time.After(claimWait / 2):
			require.Fail(t, "the server waits on for an agent that has left", "body %q", body)
		}
		web.Close()
	}
}
