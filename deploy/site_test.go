package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/ports"
)

// siteConfig names the configuration of the server of a site, which this program then is.
const siteConfig = "WEIR_TEST_SITE_CONFIG"

// siteCut is how long the site is cut off, where it is not 5 s.
const siteCut = "WEIR_TEST_SITE_CUT"

func TestMain(m *testing.M) {
	if path := os.Getenv(siteConfig); path != "" {
		if err := beSite(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beSite is the server of a site until standard input ends.
func beSite(path string) error {
	o, err := server.ProcessConfigFile(path)
	if err != nil {
		return err
	}
	o.NoSigs = true
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	go s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// The files of deploy/nats are whole: the brokers ask a site for a password, over TLS, and the site asks for the brokers' certificate.
func TestTheSampleSitesAreClosed(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir)
	certificate, err := os.ReadFile(filepath.Join(dir, "server.pem"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), certificate, 0o600))
	hub, err := os.ReadFile("nats/sites.conf")
	require.NoError(t, err)
	site, err := os.ReadFile("nats/site.conf")
	require.NoError(t, err)
	t.Chdir(dir)
	o := &server.Options{}
	require.NoError(t, o.ProcessConfigString(string(hub)))
	require.Equal(t, "SECRET", o.LeafNode.Password)
	require.NotNil(t, o.LeafNode.TLSConfig)
	require.True(t, o.LeafNode.NoAdvertise)
	require.Equal(t, "WEIR", o.LeafNode.Account, "weir keys makes it: it holds the streams")
	o = &server.Options{}
	require.NoError(t, o.ProcessConfigString(string(site)))
	require.False(t, o.JetStream, "a site stores nothing")
	require.Len(t, o.LeafNode.Remotes, 1)
	remote := o.LeafNode.Remotes[0]
	require.Len(t, remote.URLs, 3)
	require.NotNil(t, remote.TLSConfig.RootCAs)
	require.False(t, remote.TLSConfig.InsecureSkipVerify)
	require.Equal(t, "127.0.0.1", o.Host, "nothing connects in")
}

// Three brokers hold every stream three times. A site is in a network of its own and connects out, over lines that delay and break. It
// is cut off while the run trains, comes back, and the record says that nothing was lost, doubled or staler than the bound.
func TestASiteBehindNATIsCutOffAndComesBack(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "a minute and more of three brokers, a trainer and two sites")
	cut := 5 * time.Second
	if text := os.Getenv(siteCut); text != "" {
		var err error
		cut, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "weir")
	build(t, "..", binary)
	m := newMixture(t, binary)
	hub := startHub(t)
	m.env = append(m.env, "WEIR_BROKER__URL="+hub.clients, "WEIR_STREAMS__REPLICAS=3")
	place := newPlace(t)
	lines := make([]*line, len(hub.leaves))
	for i, leaf := range hub.leaves {
		lines[i] = newLine(t, net.JoinHostPort(place.hub, "0"), leaf, 20*time.Second)
	}
	metrics := startSite(t, m, place, lines)

	for _, role := range []string{"trainer", "inference", "producer"} {
		m.start(role)
	}
	m.trains("the hub")
	m.startAs("site-inference", "inference", place.prefix, "WEIR_BROKER__URL="+place.url)
	m.startAs("site-producer", "producer", place.prefix, "WEIR_BROKER__URL="+place.url, "WEIR_TELEMETRY__LISTEN="+metrics)
	published := func() float64 {
		page, err := get(m.ctx, "http://"+metrics+"/metrics")
		if err != nil {
			return 0
		}
		n, _ := sumOf(page, "weir_producer_tokens_total")
		return n
	}
	m.until("the site publishes", func() bool { return published() > 0 })

	began := time.Now()
	for _, l := range lines {
		l.setCut(true)
	}
	m.trains("the hub without its site")
	m.until("the cut has been long enough", func() bool { return time.Since(began) >= cut })
	before := published()
	for _, l := range lines {
		l.setCut(false)
	}
	took := time.Since(began)
	m.until("the site publishes again", func() bool { return published() > before })
	m.trains("the hub with its site")

	// From here on the site alone brings what is trained on.
	m.stop("producer")
	m.trains("the hub on what was under way")
	sent := func() (up, down int64) {
		for _, l := range lines {
			up, down = up+l.up.Load(), down+l.down.Load()
		}
		return up, down
	}
	tokens, version := published(), m.version()
	up, down := sent()
	m.trains("the hub by its site alone")
	tokens, version = published()-tokens, m.version()-version
	upAfter, downAfter := sent()
	up, down = upAfter-up, downAfter-down
	require.Positive(t, tokens)
	m.stop("site-producer")
	m.stop("trainer")
	var audit struct {
		OK           bool
		Steps        int64
		Trained      int
		MaxStaleness int64                 `json:"max_staleness"`
		Stale        struct{ Count int64 } `json:"stale_over_bound"`
		NotTrainedOn map[string]int        `json:"not_trained_on"`
	}
	text := m.command("audit", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(text), &audit), text)
	require.True(t, audit.OK, text)
	require.Zero(t, audit.Stale.Count, text)
	t.Logf("%s: cut for %s; %d steps, %d trajectories trained on, staleness at most %d, not trained on %v",
		place.what, took.Round(time.Second), audit.Steps, audit.Trained, audit.MaxStaleness, audit.NotTrainedOn)
	t.Logf("by the site alone: %.0f tokens in %d versions; %.1f bytes up a token, %.0f KB down a version", tokens, version,
		float64(up)/tokens, float64(down)/1e3/float64(version))
}

// hub is three brokers of one cluster that take sites.
type hub struct {
	clients string   // URLs
	leaves  []string // addresses for sites
}

func startHub(t *testing.T) *hub {
	t.Helper()
	conf, err := os.ReadFile("nats/sites.conf")
	require.NoError(t, err)
	block := regexp.MustCompile(`(?m)^  tls .*$`).ReplaceAllString(string(conf), "") // the lines are the test's own
	block += `
accounts { WEIR { jetstream: enabled, users: [ { user: hub, password: hub } ] } }
no_auth_user: hub
`
	const n = 3
	routes := make([]*url.URL, n)
	for i := range routes {
		port, err := ports.Reserve()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, port.Release()) })
		routes[i] = &url.URL{Scheme: "nats", Host: port.Address}
	}
	servers := make([]*server.Server, n)
	for i := range n {
		o := &server.Options{}
		require.NoError(t, o.ProcessConfigString(block))
		o.ServerName, o.Host, o.Port, o.NoSigs, o.NoLog = fmt.Sprintf("weir-%d", i+1), "127.0.0.1", server.RANDOM_PORT, true, true
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
		o.JetStream, o.StoreDir, o.MaxPayload, o.MaxPending = true, t.TempDir(), 8<<20, 256<<20
		address, err := net.ResolveTCPAddr("tcp", routes[i].Host)
		require.NoError(t, err)
		o.Cluster = server.ClusterOpts{Name: "weir", Host: "127.0.0.1", Port: address.Port}
		o.Routes = routes
		servers[i], err = server.NewServer(o)
		require.NoError(t, err)
		go servers[i].Start()
		t.Cleanup(func() { servers[i].Shutdown(); servers[i].WaitForShutdown() })
	}
	h := &hub{}
	var clients []string
	for _, s := range servers {
		require.True(t, s.ReadyForConnections(2*time.Minute))
		clients = append(clients, s.ClientURL())
		varz, err := s.Varz(nil)
		require.NoError(t, err)
		h.leaves = append(h.leaves, net.JoinHostPort("127.0.0.1", fmt.Sprint(varz.LeafNode.Port)))
	}
	h.clients = strings.Join(clients, ",")
	return h
}

// place is where a site is.
type place struct {
	what   string
	prefix []string // of a command that runs there
	hub    string   // the address that the site reaches the hub by
	own    string   // the site's own, for the test's eyes
	url    string   // of the site's server
}

// newPlace is a network namespace that reaches this one by one link. Where none can be made, the site is on loopback and only the lines
// are between.
func newPlace(t *testing.T) *place {
	t.Helper()
	name := fmt.Sprintf("weir%d", os.Getpid()%100000)
	near, far := name+"a", name+"b"
	p := &place{what: "a site in a network namespace", prefix: []string{"ip", "netns", "exec", name}, hub: "10.213.77.1", own: "10.213.77.2"}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() }) // with its link; there may be none
	for _, args := range [][]string{
		{"netns", "add", name},
		{"link", "add", near, "type", "veth", "peer", "name", far, "netns", name},
		{"address", "add", p.hub + "/30", "dev", near},
		{"link", "set", near, "up"},
		{"-n", name, "address", "add", p.own + "/30", "dev", far},
		{"-n", name, "link", "set", far, "up"},
		{"-n", name, "link", "set", "lo", "up"},
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Logf("no network namespace: ip %s: %v: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
			return &place{what: "a site on loopback", hub: "127.0.0.1", own: "127.0.0.1"}
		}
	}
	return p
}

// startSite starts the server of a site, as deploy/nats/site.conf has it, and returns where its producer is to show its metrics.
func startSite(t *testing.T, m *mixture, p *place, lines []*line) (metrics string) {
	t.Helper()
	free := func() string {
		port, err := ports.Reserve()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, port.Release()) })
		return port.Address
	}
	listen := free() // in a network of its own every port is free
	_, port, err := net.SplitHostPort(free())
	require.NoError(t, err)
	conf, err := os.ReadFile("nats/site.conf")
	require.NoError(t, err)
	text := string(conf)
	change := func(old, new string) {
		require.Contains(t, text, old)
		text = strings.ReplaceAll(text, old, new)
	}
	change("listen: 127.0.0.1:4222", "listen: "+listen)
	change("http: 127.0.0.1:8222", "")
	change("tls { ca_file: ca.pem, timeout: 10 }", "")
	change("tls://", "nats://")
	for i, l := range lines {
		change(fmt.Sprintf("weir-%d:7422", i+1), l.listener.Addr().String())
	}
	path := filepath.Join(t.TempDir(), "site.conf")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	args := append(slices.Clip(p.prefix), self)
	cmd := exec.CommandContext(m.ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), siteConfig+"="+path)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	log, err := os.Create(m.log("site-server"))
	require.NoError(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // it ends with its input
		_ = cmd.Wait() // or with the context
	})
	p.url = "nats://" + listen
	return net.JoinHostPort(p.own, port)
}

func get(ctx context.Context, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}
