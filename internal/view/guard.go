package view

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/httpguard"
)

// policy is the page's Content-Security-Policy: its own files, and nothing in line. Canvas pictures need no more.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard lets through permitted requests.
type guard struct {
	token [sha256.Size]byte
	// open lets whoever is on the machine read without the token: see httpguard.Direct.
	open  bool
	hosts []string
}

// newToken is a token that nobody can guess.
func newToken() string {
	raw := make([]byte, 18)
	_, _ = rand.Read(raw) // it never fails
	return base64.RawURLEncoding.EncodeToString(raw)
}

// readToken reads the token of a file.
func readToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("view.token_file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	bad := strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
	if len(token) < 16 || len(token) > 256 || bad {
		return "", fmt.Errorf("view.token_file: %s: want one line of 16 to 256 printable characters without spaces", path)
	}
	return token, nil
}

// wrapHandler puts the guard before a handler.
func (g *guard) wrapHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !g.isKnownHost(r.Host) {
			writeError(w, http.StatusMisdirectedRequest, fmt.Sprintf("the page is not served under the name %q: ask for an address or localhost, or name the host in view.hosts", r.Host))
			return
		}
		if strings.HasPrefix(r.URL.Path, "/api/") {
			h.Set("Cache-Control", "no-store")
			if status, why := g.judgeRequest(r); status != 0 {
				writeError(w, status, why)
				return
			}
		} else if r.Method != http.MethodGet && r.Method != http.MethodHead {
			writeError(w, http.StatusMethodNotAllowed, "want GET")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isKnownHost reports whether the page is served under a name. A page elsewhere can have a name of its own lead here, but not an
// address.
func (g *guard) isKnownHost(hostport string) bool {
	host := httpguard.HostName(hostport)
	return host == "localhost" || net.ParseIP(host) != nil || slices.ContainsFunc(g.hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// judgeRequest refuses a request to the API with a status; 0 lets it through. Another site's page is refused, whatever it asks. What changes
// something needs the token always, and comes from this page alone.
func (g *guard) judgeRequest(r *http.Request) (status int, why string) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if httpguard.Foreign(r) {
		return http.StatusForbidden, "the request comes from another site's page"
	}
	if !reads && r.Header.Get("Content-Type") != "application/json" {
		return http.StatusUnsupportedMediaType, "want Content-Type: application/json"
	}
	if reads && g.open && httpguard.Direct(r) {
		return 0, ""
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	hash := sha256.Sum256([]byte(given))
	if !ok || subtle.ConstantTimeCompare(hash[:], g.token[:]) != 1 {
		return http.StatusUnauthorized, "this needs the token that was printed at the start, or that view.token_file holds"
	}
	return 0, ""
}
