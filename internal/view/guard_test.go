package view

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/runfolder"
)

func TestTheGuardLetsThroughWhoMay(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef-token"
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	for name, c := range map[string]struct {
		open   bool
		method string
		path   string
		host   string
		header map[string]string
		want   int
	}{
		"loopback reads without a token": {open: true, path: "/api/runs", want: 200},
		"elsewhere the token is needed":  {path: "/api/runs", want: 401},
		"a wrong token":                  {path: "/api/runs", header: map[string]string{"Authorization": "Bearer " + token + "x"}, want: 401},
		"another scheme":                 {path: "/api/runs", header: map[string]string{"Authorization": token}, want: 401},
		"the token":                      {path: "/api/runs", header: map[string]string{"Authorization": "Bearer " + token}, want: 200},
		"the page itself tells nothing":  {path: "/", want: 200},
		"another name":                   {open: true, path: "/", host: "evil.example:80", want: 421},
		"another name that ends well":    {open: true, path: "/api/runs", host: "localhost.evil.example", want: 421},
		"localhost":                      {open: true, path: "/api/runs", host: "localhost:1234", want: 200},
		"an address of version 6":        {open: true, path: "/api/runs", host: "[::1]:1234", want: 200},
		"a name that was named":          {open: true, path: "/api/runs", host: "Trainer.Internal:8686", header: map[string]string{"Authorization": "Bearer " + token}, want: 200},
		// Finding A5 of the second adversarial review: a proxy on the machine asks from loopback, for whoever asks it.
		"a proxy's name":                    {open: true, path: "/api/runs", host: "trainer.internal", want: 401},
		"an address that is not loopback's": {open: true, path: "/api/runs", host: "10.1.2.3", want: 401},
		"Forwarded":                         {open: true, path: "/api/runs", header: map[string]string{"Forwarded": "for=10.1.2.3"}, want: 401},
		"X-Forwarded-For":                   {open: true, path: "/api/runs", header: map[string]string{"X-Forwarded-For": "127.0.0.1"}, want: 401},
		"X-Forwarded-Host":                  {open: true, path: "/api/runs", header: map[string]string{"X-Forwarded-Host": "localhost"}, want: 401},
		"X-Real-IP":                         {open: true, path: "/api/runs", header: map[string]string{"X-Real-IP": "127.0.0.1"}, want: 401},
		"X-Forwarded-Server":                {open: true, path: "/api/runs", header: map[string]string{"X-Forwarded-Server": "proxy"}, want: 401}, // 12a.2
		"CF-Connecting-IP":                  {open: true, path: "/api/runs", header: map[string]string{"CF-Connecting-IP": "10.1.2.3"}, want: 401},
		"True-Client-IP":                    {open: true, path: "/api/runs", header: map[string]string{"True-Client-IP": "10.1.2.3"}, want: 401},
		"a proxy with the token":            {open: true, path: "/api/runs", host: "trainer.internal", header: map[string]string{"X-Forwarded-For": "10.1.2.3", "Authorization": "Bearer " + token}, want: 200},
		// Finding A1 of the second adversarial review: another site's page has no business with what the page reads either.
		"a read for another site":           {open: true, path: "/api/runs", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: 403},
		"a read for another origin":         {open: true, path: "/api/runs", header: map[string]string{"Origin": "https://evil.example"}, want: 403},
		"a read for an origin without name": {open: true, path: "/api/runs", header: map[string]string{"Origin": "null"}, want: 403},
		"an address that somebody typed":    {open: true, path: "/api/runs", header: map[string]string{"Sec-Fetch-Site": "none"}, want: 200},
		"an act without a token":            {open: true, method: "POST", path: "/api/runs", header: map[string]string{"Content-Type": "application/json"}, want: 401},
		"an act from another site":          {open: true, method: "POST", path: "/api/runs", header: map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + token, "Sec-Fetch-Site": "cross-site"}, want: 403},
		"an act from another origin":        {open: true, method: "POST", path: "/api/runs", header: map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + token, "Origin": "http://evil.example"}, want: 403},
		"an act that a form could send":     {open: true, method: "POST", path: "/api/runs", header: map[string]string{"Content-Type": "text/plain", "Authorization": "Bearer " + token}, want: 415},
		"writing to the page":               {open: true, method: "POST", path: "/", want: 405},
		"a folder":                          {open: true, path: "/web/", want: 404},
		"what is not there":                 {open: true, path: "/api/nothing", want: 404},
		"a run that is not there":           {open: true, path: "/api/runs/x/overview", want: 404},
		"a way out of the embedded files":   {open: true, path: "/..%2fserver.go", want: 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Listen(Config{Listen: "127.0.0.1:0", TokenFile: file, Hosts: []string{"trainer.internal"}}, Deps{Runs: []Run{{Run: runfolder.Run{Name: "demo", Dir: t.TempDir()}}}}, false)
			require.NoError(t, err)
			require.Contains(t, s.URL(), "#token="+token)
			s.guard.open = c.open // as if it had no names, or listened beyond loopback
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			if c.method == "" {
				c.method = http.MethodGet
			}
			req, err := http.NewRequestWithContext(ctx, c.method, "http://"+s.listener.Addr().String()+c.path, http.NoBody)
			require.NoError(t, err)
			for k, v := range c.header {
				req.Header.Set(k, v)
			}
			if c.host != "" {
				req.Host = c.host
			}
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, c.want, res.StatusCode, "%s", body)
			require.Equal(t, policy, res.Header.Get("Content-Security-Policy"))
			require.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
			require.Empty(t, res.Header.Get("Access-Control-Allow-Origin"))
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

// Finding A5 of the second adversarial review, its variants: nginx asks as the machine itself unless it is told otherwise, under the
// address that it asks and with no header of a proxy.
func TestAProxyThatSaysNothingAsksForTheToken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hosts  []string
		proto  string
		status string
	}{
		"nobody's proxy":             {proto: "HTTP/1.1", status: " 200 "},
		"a proxy by its protocol":    {proto: "HTTP/1.0", status: " 401 "},
		"a proxy before named hosts": {hosts: []string{"view.example"}, proto: "HTTP/1.1", status: " 401 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Listen(Config{Listen: "127.0.0.1:0", Hosts: c.hosts}, Deps{Runs: []Run{{Run: runfolder.Run{Name: "demo", Dir: t.TempDir()}}}}, false)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			conn, err := net.Dial("tcp", s.listener.Addr().String())
			require.NoError(t, err)
			_, err = fmt.Fprintf(conn, "GET /api/runs %s\r\nHost: %s\r\nConnection: close\r\n\r\n", c.proto, s.listener.Addr())
			require.NoError(t, err)
			body, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			first, _, _ := strings.Cut(string(body), "\r\n")
			require.Contains(t, first, c.status)
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

func TestThePolicyAllowsNothingInLineAndNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	require.NotContains(t, policy, "unsafe")
	require.NotContains(t, policy, "http")
	require.Contains(t, policy, "default-src 'none'")
	entries, err := web.ReadDir("web")
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, e := range entries {
		data, err := web.ReadFile("web/" + e.Name())
		require.NoError(t, err)
		text := string(data)
		for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "createContextualFragment", "setHTML", "srcdoc", "javascript:"} {
			require.NotContains(t, text, way, "%s: text could become markup", e.Name())
		}
		rest := strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "") // a name, which nobody asks for
		require.NotContains(t, rest, "http://", e.Name())
		require.NotContains(t, rest, "https://", e.Name())
	}
}

func TestATokenFileIsHeldToItsForm(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"short": "abc", "with a space": "0123456789 abcdef0", "empty": "", "two lines": "0123456789abcdef\n0123456789abcdef"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "token")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			_, err := Listen(Config{Listen: "127.0.0.1:0", TokenFile: file}, Deps{}, false)
			require.ErrorContains(t, err, "view.token_file")
			require.ErrorContains(t, err, file)
		})
	}
}

func TestAPortInUse(t *testing.T) {
	t.Parallel()
	first, err := Listen(Config{Listen: "127.0.0.1:0"}, Deps{}, false)
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Close()) }()
	at := first.listener.Addr().String()
	_, err = Listen(Config{Listen: at}, Deps{}, false)
	require.ErrorContains(t, err, at)
	require.ErrorContains(t, err, "--view.listen")
	second, err := Listen(Config{Listen: at}, Deps{}, true)
	require.NoError(t, err)
	require.NotEqual(t, at, second.listener.Addr().String())
	require.NoError(t, second.Close())
}

// Finding O5 of the second operators' review: a container prints the address at which its port is published.
func TestThePublishedAddressIsPrinted(t *testing.T) {
	t.Parallel()
	for published, want := range map[string]string{
		"127.0.0.1:8687": "127.0.0.1:8687", "8687": "127.0.0.1:8687", "0.0.0.0:8687": "127.0.0.1:8687", "[::1]:8687": "[::1]:8687", "trainer.example:80": "trainer.example:80",
		"": "", "127.0.0.1:": "",
	} {
		c := Config{Listen: "127.0.0.1:0", Published: published}
		require.NoError(t, c.Validate(), published)
		s, err := Listen(c, Deps{}, false)
		require.NoError(t, err)
		if want == "" {
			want = s.listener.Addr().String()
		}
		require.True(t, strings.HasPrefix(s.URL(), "http://"+want+"/#token="), "%s: %s", published, s.URL())
		require.NoError(t, s.Close())
	}
	for _, wrong := range []string{"x", "0", "65536", "1:2:3", "127.0.0.1:x"} {
		require.ErrorContains(t, Config{Published: wrong}.Validate(), `published: "`+wrong+`"`)
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
	require.NoError(t, Config{}.Validate())
	err := Config{Listen: "8686", Hosts: []string{"a:1", ""}}.Validate()
	require.ErrorContains(t, err, "listen: \"8686\"")
	require.ErrorContains(t, err, "hosts: \"a:1\"")
	require.ErrorContains(t, err, "hosts: \"\"")
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "0.0.0.0:1": false, ":1": false, "10.0.0.1:1": false, "x": false} {
		require.Equal(t, want, Loopback(address), address)
	}
}
