package servers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/internal/fakeserver"
)

// A stream with events and comments, and no token, is no life: the call is given up after stall_timeout.
func TestAStreamWithoutTokensIsGivenUp(t *testing.T) {
	t.Parallel()
	idle := map[fakeserver.Kind]string{
		fakeserver.VLLM:   `{"choices":[]}`,
		fakeserver.SGLang: `{"meta_info":{"finish_reason":null,"completion_tokens":0,"output_token_logprobs":[]}}`,
	}
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good())
		back, err := url.Parse(w.fakes[0].URL())
		require.NoError(t, err)
		proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(back) }, FlushInterval: -1}
		var stuck atomic.Bool
		front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != generatePath[kind] || !stuck.CompareAndSwap(true, false) {
				proxy.ServeHTTP(rw, r)
				return
			}
			rw.Header().Set("Content-Type", "text/event-stream")
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				_, err := fmt.Fprintf(rw, ": ping\n\ndata: %s\n\n", idle[kind])
				if err != nil || http.NewResponseController(rw).Flush() != nil {
					return
				}
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				}
			}
		}))
		t.Cleanup(front.Close)
		n := newWorldOver(t, w, func(c *consumers.Config) { c.Server.StallTimeout, c.Server.EndsEvery = time.Second, 0 }, front.URL)
		n.run()
		n.swapSoon(0)
		stuck.Store(true)
		n.whole(ask("a", 4))
		require.False(t, stuck.Load())
	})
}

// A stream of tokens without an end is read no further than the length that was asked for.
func TestAStreamOfTokensWithoutAnEndIsMalformed(t *testing.T) {
	t.Parallel()
	token := map[fakeserver.Kind]string{
		fakeserver.VLLM:   `{"choices":[{"token_ids":[1],"logprobs":{"content":[{"token":"token_id:1","logprob":-1}]}}]}`,
		fakeserver.SGLang: `{"meta_info":{"output_token_logprobs":[[-1,1,null]],"completion_tokens":%d}}`,
	}
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		const most = 100_000
		flood := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range most {
				event := token[kind]
				if kind == fakeserver.SGLang {
					event = fmt.Sprintf(event, i+1)
				}
				if _, err := fmt.Fprintf(w, "data: %s\n\n", event); err != nil {
					return
				}
			}
			_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
		}))
		t.Cleanup(flood.Close)
		remote := servers.NewRemote(flood.URL, "", "")
		t.Cleanup(remote.Close)
		_, err := kinds[kind].Speak(remote).Generate(t.Context(), &servers.Query{ID: "x", Tokens: []int32{1}, MaxTokens: 4, Temperature: 1}, func() {})
		require.ErrorIs(t, err, servers.ErrMalformed)
		require.ErrorContains(t, err, "5 tokens where 4 were asked for")
	})
}
