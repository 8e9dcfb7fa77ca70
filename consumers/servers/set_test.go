package servers

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
)

// silentKind is a kind of which nothing is asked.
type silentKind struct{ Kind }

func (silentKind) Speak(*Remote) Speaker { return nil }

// Lists that are given at the same time take each server in once: two keepers would load a server's weights against each other.
func TestListsAtTheSameTimeTakeAServerInOnce(t *testing.T) {
	t.Parallel()
	metrics, err := consumers.NewMetrics(nil)
	require.NoError(t, err)
	cfg := consumers.DefaultConfig()
	cfg.Server.List = "list"
	p := New(cfg, silentKind{}, Options{Metrics: metrics})
	for round := range 500 {
		var urls []string
		for i := range 20 {
			urls = append(urls, fmt.Sprintf("http://gpu-%d-%d:8000", round, i))
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { p.Set(urls) })
		}
		all.Wait()
		require.Len(t, p.servers, len(urls))
	}
}

// A server that is named with a slash at its end, and without, is one server: two keepers would load its weights against each other.
func TestAServerIsTheSameWithASlash(t *testing.T) {
	t.Parallel()
	metrics, err := consumers.NewMetrics(nil)
	require.NoError(t, err)
	cfg := consumers.DefaultConfig()
	cfg.Servers = []string{"http://a:8000", "http://a:8000/", "http://b"}
	p := New(cfg, silentKind{}, Options{Metrics: metrics})
	require.Len(t, p.servers, 2)
	first := p.servers[0]
	p.Set([]string{"http://a:8000/"})
	require.Equal(t, []*server{first}, p.servers)
}
