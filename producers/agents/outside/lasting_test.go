package outside_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/ports"
)

// postPatiently is post as the clients of OpenAI and Anthropic do it with many retries: a connection that failed is tried again, and so is a
// status 408, 409, 429 or 5xx.
func postPatiently(ctx context.Context, url, key string, body, v any) (int, error) {
	for {
		status, err := post(ctx, url, key, body, v)
		switch {
		case err == nil, ctx.Err() != nil:
			return status, err
		case status == 0, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooManyRequests, status >= 500:
			pause(ctx, 20*time.Millisecond)
		default:
			return status, err
		}
	}
}

// comers are agents that come for episodes and live on while producers die.
type comers struct {
	mu     sync.Mutex
	taken  map[string]int // agents that were answered, by episode
	failed []error
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// startComers starts agents that come to an address.
func startComers(ctx context.Context, address string, n int) *comers {
	ctx, stop := context.WithCancel(ctx)
	c := &comers{taken: map[string]int{}, stop: stop}
	for range n {
		c.ended.Go(func() {
			for ctx.Err() == nil {
				var o offer
				if _, err := post(ctx, "http://"+address+"/episodes", "sesame", struct{}{}, &o); err != nil {
					pause(ctx, 20*time.Millisecond)
					continue
				}
				answered := 0
				answer, err := askEight(ctx, o, func(ctx context.Context, url, key string, body, v any) (int, error) {
					status, err := postPatiently(ctx, url, key, body, v)
					if answered++; err == nil && answered == 1 {
						c.note(o.ID, nil)
					}
					return status, err
				})
				if err != nil && answered == 1 {
					continue // another agent came for the episode before this agent had asked anything
				}
				if err == nil {
					_, err = postPatiently(ctx, o.Base+"/weir/finish", o.Key, map[string]any{"answer": answer, "reward": 1}, new(any))
				}
				if err != nil && ctx.Err() == nil {
					c.note("", fmt.Errorf("%s: %w", o.ID, err))
				}
			}
		})
	}
	return c
}

func (c *comers) note(episode string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed = append(c.failed, err)
		return
	}
	c.taken[episode]++
}

// requireEachOnce ends the agents: each episode was that of a single agent, which brought it to its end.
func (c *comers) requireEachOnce(t *testing.T, k *killing) {
	t.Helper()
	c.stop()
	c.ended.Wait()
	require.Empty(t, c.failed)
	require.Len(t, c.taken, len(k.want))
	for episode, n := range c.taken {
		require.Equal(t, 1, n, "episode %s was given to %d agents", episode, n)
	}
}

// Producers are killed while agents that came by themselves ask them. The agents live on, with the address and the key that they have: at the
// next producer each request is answered once, and the trajectories are those of undisturbed episodes.
func TestInvariantAnAgentThatLivesOnGoesOnWithItsEpisodeAtTheNextProducer(t *testing.T) {
	t.Setenv("WEIR_AGENT_KEY", "sesame")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	reserve := func(t *testing.T) string {
		port, err := ports.Reserve()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, port.Release()) })
		return port.Address
	}
	t.Run("that is started again", func(t *testing.T) {
		k, address := startKilling(ctx, t, startService(t), 4), reserve(t)
		agents := startComers(ctx, address, 2)
		k.playKilled(kindExternal, address)
		agents.requireEachOnce(t, k)
	})
	t.Run("behind the same address", func(t *testing.T) {
		k, addresses := startKilling(ctx, t, startService(t), 4), []string{reserve(t), reserve(t)}
		var turn atomic.Int64
		door := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: addresses[turn.Add(1)%2]}) // one of them is dead
			},
			ErrorLog: log.New(io.Discard, "", 0),
		})
		defer door.Close()
		agents := startComers(ctx, strings.TrimPrefix(door.URL, "http://"), 2)
		k.playKilled(kindExternal, strings.Join(append(addresses, door.URL), ","))
		agents.requireEachOnce(t, k)
	})
}
