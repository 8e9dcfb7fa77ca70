package httpguard_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/httpguard"
)

// Finding 12a.8 of the twelfth reader: on loopback a name of the local network, which others there may answer, led a stranger's page in.
func TestANameOfTheNetworkIsNoNameOfLoopback(t *testing.T) {
	t.Parallel()
	handler := httpguard.Rules{Hosts: []string{"tools"}, Remedy: "name it"}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	name, err := os.Hostname() // which many machines resolve to 127.0.1.1
	require.NoError(t, err)
	for host, here := range map[string]struct{ loopback, beyond int }{
		name:         {200, 200},
		"evil.local": {421, 200}, "evil": {421, 200}, "evil.lan": {421, 200}, "evil.internal": {421, 200}, "ai.": {421, 200}, "evil.example": {421, 421},
		"tools": {200, 200}, "localhost": {200, 200}, "weir.localhost": {200, 200}, "127.0.0.1": {200, 200}, "[::1]": {200, 200},
	} {
		for local, want := range map[string]int{"127.0.0.1": here.loopback, "::1": here.loopback, "127.0.1.1": here.loopback, "10.1.2.3": here.beyond} {
			ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(local), Port: 8000})
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:8000/", http.NoBody)
			r.Host = host + ":8000"
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			require.Equal(t, want, w.Code, "%s at %s", host, local)
		}
	}
}

// Finding A16 of the second adversarial review: what a stranger's page can have a browser send is refused.
func TestARequestIsHeldToTheRules(t *testing.T) {
	t.Parallel()
	rules := httpguard.Rules{Hosts: []string{"tools.example"}, Remedy: "name it"}
	handler := rules.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, c := range map[string]struct {
		method, host, kind string
		header             [2]string
		want               int
	}{
		"a client":                 {want: 200},
		"an address":               {host: "10.1.2.3:8000", want: 200},
		"an address of version 6":  {host: "[::1]:8000", want: 200},
		"a name of the network":    {host: "toolserver:8000", want: 200},
		"a name of a cluster":      {host: "tools.ns.svc:8000", want: 200},
		"a name that was named":    {host: "Tools.Example", want: 200},
		"a stranger's name by DNS": {host: "evil.example:8000", want: 421},
		"one that ends well":       {host: "localhost.evil.example", want: 421},
		"none":                     {host: ":80", want: 421},
		"another site":             {header: [2]string{"Sec-Fetch-Site", "cross-site"}, want: 403},
		"a neighbour":              {header: [2]string{"Sec-Fetch-Site", "same-site"}, want: 403},
		"another origin":           {header: [2]string{"Origin", "https://evil.example"}, want: 403},
		"an origin without a name": {header: [2]string{"Origin", "null"}, want: 403},
		"another port's origin":    {header: [2]string{"Origin", "http://127.0.0.1:9"}, want: 403},
		"its own origin":           {header: [2]string{"Origin", "http://127.0.0.1:8000"}, want: 200},
		"a GET of another site":    {method: http.MethodGet, header: [2]string{"Sec-Fetch-Site", "cross-site"}, want: 403},
		"a GET":                    {method: http.MethodGet, want: 200},
		"a form":                   {kind: "text/plain", want: 415},
		"another form":             {kind: "application/x-www-form-urlencoded", want: 415},
		"a form with files":        {kind: "multipart/form-data; boundary=x", want: 415},
		"no type":                  {kind: "-", want: 200},
		"no type of another site":  {kind: "-", header: [2]string{"Origin", "https://evil.example"}, want: 403},
		"what is no type":          {kind: "/", want: 415},
		"a form that names JSON":   {kind: "text/plain; application/json", want: 415},
		"JSON with its letters":    {kind: "application/json; charset=utf-8", want: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8000/get_observation", strings.NewReader("{}"))
			if c.method != "" {
				r.Method = c.method
			}
			if c.host != "" {
				r.Host = c.host
			}
			if c.kind == "" {
				c.kind = "application/json"
			}
			if c.kind != "-" {
				r.Header.Set("Content-Type", c.kind)
			}
			if c.header[0] != "" {
				r.Header.Set(c.header[0], c.header[1])
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			require.Equal(t, c.want, w.Code, w.Body.String())
		})
	}
}
