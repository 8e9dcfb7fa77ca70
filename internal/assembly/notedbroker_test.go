package assembly

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
)

// Finding 12a.5 of the twelfth reader: a look at somebody's folder connected to any address that its file broker.url names, and signed with the
// viewer's key there. Finding 13.3 of the thirteenth: so it did where a comma in the user's name hid the address, at which the client splits.
func TestTheBrokerOfAFolderIsOnThisMachine(t *testing.T) {
	t.Parallel()
	name, err := os.Hostname()
	require.NoError(t, err)
	for noted, followed := range map[string]bool{
		"nats://127.0.0.1:4222":            true,
		"nats://[::1]:4222":                true,
		"nats://0.0.0.0:4222":              true,
		"nats://localhost:4222":            true,
		"tls://" + name + ":4222":          true,
		"nats://192.0.2.7:4222":            false,
		"nats://evil.example:4222":         false,
		"nats://127.0.0.1.evil.example:1":  false,
		"nats://127.0.0.1@192.0.2.7:4222":  false,
		"nats://127.0.0.1:1,192.0.2.7:1":   false,
		"nats://192.0.2.7:1,@127.0.0.1:4":  false,
		"nats://a:b,192.0.2.7@127.0.0.1:4": false,
		"nats://user:x@127.0.0.1:4222":     false,
		"nats://@127.0.0.1:4222":           false,
		"nats://127.0.0.1:1/,192.0.2.7:1":  false,
		"nats://127.0.0.1:1?,192.0.2.7:1":  false,
		"nats://127.0.0.1:1#,192.0.2.7:1":  false,
		"nats://[::1%25,192.0.2.7:1,]:1":   false,
		"nats://,192.0.2.7:1,127.0.0.1:1":  false,
		"nats://127.0.0.1:1%2c192.0.2.7":   false,
		"//192.0.2.7:1,@127.0.0.1:4":       false,
		"127.0.0.1:4222":                   false,
		"nats:127.0.0.1:4222":              false,
		"":                                 false,
		"://":                              false,
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, brokerFile), []byte(noted+"\n"), 0o600))
		want := ""
		if followed {
			want = noted
		}
		require.Equal(t, want, NotedBroker(dir), noted)
	}
	require.Empty(t, NotedBroker(t.TempDir()))
}

// Finding 13.3 of the thirteenth reader: whatever a folder notes, the client asks none but this machine.
func TestTheClientReadsANotedBrokerAsItWasChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pieces := rapid.SampledFrom([]string{
		"192.0.2.7:1,", ",192.0.2.7:1", "127.0.0.1:4", "@127.0.0.1:4", "[::1]", ":@", "@", ",", "/", "?", "#", "%25", "%2c", "\\", " ", "\t", "//", "nats://",
	})
	rapid.Check(t, func(rt *rapid.T) {
		noted := "nats://" + strings.Join(rapid.SliceOfN(pieces, 1, 4).Draw(rt, "noted"), "")
		require.NoError(rt, os.WriteFile(filepath.Join(dir, brokerFile), []byte(noted), 0o600))
		followed := NotedBroker(dir)
		if followed == "" {
			return
		}
		for server := range strings.SplitSeq(followed, ",") { // as nats.Connect does
			if !strings.Contains(server, "://") {
				server = "nats://" + server
			}
			at, err := url.Parse(strings.TrimSpace(server))
			require.NoError(rt, err)
			require.Contains(rt, []string{"127.0.0.1", "::1", "localhost"}, at.Hostname(), noted)
		}
	})
}

// A low finding of earlier readers: the page of a run whose broker is on another machine said that no broker was up, and not how to name
// it.
func TestAPageSaysHowToNameABrokerElsewhere(t *testing.T) {
	t.Parallel()
	cfg, _, err := Resolve(builtin.Doors(), config.Sources{})
	require.NoError(t, err)
	v := &Viewer{cfg: cfg}
	dir := t.TempDir()
	for noted, want := range map[string]string{
		"": "run mine: no broker is up on this machine; name a broker elsewhere with --broker.url",
		"nats://192.0.2.7:4222": `run mine: its folder notes the broker "nats://192.0.2.7:4222", which is not asked: ` +
			"it is no address of this machine. Name it with --broker.url if it is the run's",
	} {
		if noted != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, brokerFile), []byte(noted+"\n"), 0o600))
		} else {
			_ = os.Remove(filepath.Join(dir, brokerFile)) // it may not be there
		}
		_, _, err := v.connectTo("mine", dir)(t.Context())
		require.EqualError(t, err, want)
	}
}
