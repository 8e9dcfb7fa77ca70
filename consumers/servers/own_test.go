package servers_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/internal/fakeserver"
)

// buildFake builds the program that stands in for servers.
func buildFake(t *testing.T) string {
	t.Helper()
	fake := filepath.Join(t.TempDir(), "fake")
	out, err := exec.Command("go", "build", "-p", "1", "-o", fake, "github.com/weir-rl/weir/internal/fakeserver/fake").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return fake
}

// sleeper is a server's program that never listens, as an SGLang does not while it loads its model.
var sleeper = []string{"sh", "-c", `case "$*" in *--help*) exit 0;; esac; exec sleep 600`, "sh"}

// portOf is the port of a fake.
func portOf(t *testing.T, f *fakeserver.Server) int {
	t.Helper()
	u, err := url.Parse(f.URL())
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return port
}

// A server that listens already at the port of an own server is not taken for it: the version is refused with the address and the remedy.
func TestAnOwnServerIsNotStartedAtATakenAddress(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		stranger := newWorld(t, kind, nil).fake(good())
		port := portOf(t, stranger)
		w := newWorld(t, kind, func(c *consumers.Config) {
			c.Server.Command, c.Server.Count, c.Server.Port = sleeper, 1, port
		})
		w.run()
		_, err := w.Swap(t.Context(), w.snapshot(0))
		require.ErrorContains(t, err, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		require.ErrorContains(t, err, "accepts connections before a server is started there")
		require.ErrorContains(t, err, "set inference.server.port to a port that is free")
		logs, err := filepath.Glob(filepath.Join(w.dir, "*.log"))
		require.NoError(t, err)
		require.Empty(t, logs, "no program was started")
		require.Equal(t, "default", stranger.Label())
		require.Equal(t, int64(-1), w.Version())
	})
}

// strangerKind is a kind whose started program never listens, while a stranger answers at its address.
type strangerKind struct {
	servers.Kind
	stranger *servers.Remote
}

func (k strangerKind) Speak(*servers.Remote) servers.Speaker { return k.Kind.Speak(k.stranger) }

// A server that comes to the address of an own server after the start is given no name: it serves another folder, or the process is gone.
func TestAStrangerAtTheAddressOfAnOwnServerIsNotNamed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		ended := filepath.Join(t.TempDir(), "pid") // of a program that ends as soon as it has written it
		for name, f := range map[string]struct {
			command []string
			version int64
			want    string
			come    func() bool // whether the stranger answers
		}{
			"another folder":      {sleeper, 0, "the server that was started there was given", func() bool { return true }},
			"the process is gone": {[]string{"sh", "-c", "echo $$ > " + ended}, 1000, "the server's process has ended", func() bool { return isGone(ended) }},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, kind, nil)
				stranger := w.fake(good())
				at, err := url.Parse(stranger.URL())
				require.NoError(t, err)
				pass := httputil.NewSingleHostReverseProxy(at)
				address := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					until(t, "the stranger comes", f.come)
					pass.ServeHTTP(w, r)
				}))
				t.Cleanup(address.Close)
				o := newWorld(t, kind, func(c *consumers.Config) { c.Server.Command, c.Server.Count = f.command, 1 })
				remote := servers.NewRemote(address.URL, "", "")
				t.Cleanup(remote.Close)
				o.Pool = servers.New(o.cfg, strangerKind{kinds[kind], remote}, servers.Options{Metrics: o.metrics})
				o.run()
				offer := w.snapshot(f.version) // of the stranger's folder
				offer.Version = 0
				_, err = o.Swap(t.Context(), offer)
				require.ErrorContains(t, err, f.want)
				require.Equal(t, "default", stranger.Label())
				require.Equal(t, int64(-1), o.Version())
			})
		}
	})
}

// isGone reports whether the process whose id a file has was there, and has been waited for.
func isGone(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil && syscall.Kill(pid, 0) != nil
}

// linkKind is a kind whose servers report a link to their folder.
type linkKind struct {
	servers.Kind
	link string
}

func (k linkKind) Speak(r *servers.Remote) servers.Speaker {
	return linkSpeaker{k.Kind.Speak(r), k.link}
}

type linkSpeaker struct {
	servers.Speaker
	link string
}

func (s linkSpeaker) Model(ctx context.Context) (servers.Model, error) {
	m, err := s.Speaker.Model(ctx)
	m.Path = s.link
	return m, err
}

// An own server at a port that is set is taken, also where it reports its folder by another path.
func TestAnOwnServerAtASetPortServes(t *testing.T) {
	t.Parallel()
	fake := buildFake(t)
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is TCP
		require.NoError(t, l.Close())
		w := newWorld(t, kind, func(c *consumers.Config) {
			c.Server.Command, c.Server.Count, c.Server.Port = []string{fake, string(kind)}, 1, port
		})
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(w.folder(0), link))
		w.Pool = servers.New(w.cfg, linkKind{kinds[kind], link}, servers.Options{Metrics: w.metrics})
		w.run()
		w.swap(0)
		w.whole(ask("a", 4))
		w.swapSoon(1)
		w.whole(ask("a", 4))
	})
}

// sameKind is a kind whose servers report the same checksums after their first load as before.
type sameKind struct {
	servers.Kind
	looks *atomic.Int64
}

func (k sameKind) Speak(r *servers.Remote) servers.Speaker {
	return sameSpeaker{k.Kind.Speak(r), k.looks}
}

type sameSpeaker struct {
	servers.Speaker
	looks *atomic.Int64
}

func (s sameSpeaker) Checksums(context.Context) (map[string]string, error) {
	s.looks.Add(1)
	return map[string]string{"0:model.layers.1.mlp.down_proj.weight": "same"}, nil
}

// An own server that is stopped since it kept old tensors is started anew on the version that is offered, not on the version before, and the
// offer succeeds.
func TestAStoppedServerIsStartedOnTheVersionThatIsOffered(t *testing.T) {
	t.Parallel()
	fake := buildFake(t)
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, func(c *consumers.Config) {
			c.Server.Command, c.Server.Count = []string{fake, string(kind)}, 1
		})
		var looks atomic.Int64
		w.Pool = servers.New(w.cfg, sameKind{kinds[kind], &looks}, servers.Options{Metrics: w.metrics})
		w.run()
		w.swap(0)
		w.swap(1)
		require.Equal(t, int64(2), looks.Load(), "before and after the load that left old tensors")
		require.InDelta(t, 1, w.checks("stale"), 0)
		require.InDelta(t, 1, testutil.ToFloat64(w.metrics.ForServers().Restarts), 0)
		w.whole(ask("a", 4))
	})
}
