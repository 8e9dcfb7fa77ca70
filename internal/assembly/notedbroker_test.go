package assembly

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Finding 12a.5 of the twelfth reader: a look at somebody's folder connected to any address that its file broker.url names, and signed with the
// viewer's key there.
func TestTheBrokerOfAFolderIsOnThisMachine(t *testing.T) {
	t.Parallel()
	name, err := os.Hostname()
	require.NoError(t, err)
	for noted, followed := range map[string]bool{
		"nats://127.0.0.1:4222":           true,
		"nats://[::1]:4222":               true,
		"nats://0.0.0.0:4222":             true,
		"nats://localhost:4222":           true,
		"tls://" + name + ":4222":         true,
		"nats://192.0.2.7:4222":           false,
		"nats://evil.example:4222":        false,
		"nats://127.0.0.1.evil.example:1": false,
		"nats://127.0.0.1@192.0.2.7:4222": false,
		"nats://127.0.0.1:1,192.0.2.7:1":  false,
		"":                                false,
		"://":                             false,
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
