package house

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listeners says, for each file that opens a listener or makes an HTTP server, what keeps strangers' pages from it.
var listeners = map[string]string{
	"consumers/openai/listener.go":    "its key, or httpguard where there is none",
	"consumers/servers/process.go":    "a port that is looked for and closed",
	"gpu/torch/serve.go":              "no HTTP: a secret opens it",
	"internal/lab/chaos/link.go":      "no HTTP: a link of tests on loopback",
	"internal/cli/toolserver.go":      "httpguard, of weir mcp too",
	"internal/cli/torchworker.go":     "no HTTP: see gpu/torch/serve.go",
	"internal/fakeserver/server.go":   "a server of tests on loopback",
	"internal/ports/reserve_other.go": "a port that is looked for and closed",
	"internal/telemetry/server.go":    "httpguard; beyond loopback under every name",
	"internal/view/server.go":         "the guard of the page, by httpguard, and its token",
	"producers/gateway/server.go":     "the secret of an episode, or the key of offers",
	"streams/broker/config.go":        "a port that is looked for and closed; the broker's own listeners speak NATS",
	"streams/streamtest/line.go":      "no HTTP: a link of tests on loopback",
}

// clients says, for each file that makes an HTTP client, what becomes of its secrets where a server redirects it.
var clients = map[string]string{
	"consumers/servers/remote.go":                    "no redirect is followed",
	"internal/cli/scale_engines.go":                  "has no secret; asks the address it was given",
	"internal/cli/status.go":                         "has no secret",
	"internal/lab/load/broker.go":                    "has no secret; asks its own broker",
	"internal/tracing/tracer.go":                     "onlyTo",
	"producers/remote/client.go":                     "CheckRedirect",
	"trainer/archive/messages/bucket/credentials.go": "no redirect is followed; MinIO's client follows none",
	"producers/tools/mcp/connect.go":                 "CheckRedirect of producers/remote, and the token for one host",
}

// Every listener and every HTTP client of the tree has a row that says what protects it: a new one is thought of before it is there.
func TestListenersAndClientsAreKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows map[string]string
		made *regexp.Regexp
	}{
		{listeners, regexp.MustCompile(`net\.Listen(TCP|Unix)?\(|net\.ListenConfig\b|http\.Server\{|http\.ListenAndServe`)},
		{clients, regexp.MustCompile(`http\.(Client|Transport)\{|http\.Default(Client|Transport)\b|http\.(Get|Post|PostForm|Head)\(|otlptracehttp\.New\(`)},
	} {
		found := map[string]bool{}
		root := filepath.Join("..", "..")
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			servers, bounded := bytes.Count(text, []byte("http.Server{")), bytes.Count(text, []byte("ReadHeaderTimeout:"))
			require.Equal(t, servers, bounded, "%s: whoever sends headers slowly would hold a connection for ever", path)
			if err == nil && c.made.Match(text) {
				name, _ := filepath.Rel(root, path)
				found[filepath.ToSlash(name)] = true
			}
			return err
		}))
		for name := range found {
			require.Contains(t, c.rows, name, "it listens or asks by HTTP: say what protects it, and hold it to internal/httpguard or remote.CheckRedirect")
		}
		for name := range c.rows {
			if name != "gpu/torch/serve.go" { // it is handed its listener
				require.Contains(t, found, name, "the row is old")
			}
		}
	}
}
