// Package httpguard keeps pages of other sites away from Weir's HTTP servers: a browser on the machine sends their requests, so that loopback
// alone does not prove the sender. Every listener of Weir's that takes no key holds its requests to these rules.
package httpguard

import (
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// Rules choose the requests that a listener takes.
type Rules struct {
	// Hosts are the names under which the listener may be asked, beside addresses, localhost and, beyond loopback, names that public DNS cannot
	// hold.
	Hosts []string
	// Remedy is the cure in the refusal of another name.
	Remedy string
}

// Wrap puts the rules before a handler. It refuses requests of another site's page (403), a Host that a stranger could have lead here by DNS (421), and a
// body that a form could send (415).
func (g Rules) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !g.isKnown(r):
			writeRefusal(w, http.StatusMisdirectedRequest, fmt.Sprintf("nothing is served under the name %.200q: %s", r.Host, g.Remedy))
		case Foreign(r):
			writeRefusal(w, http.StatusForbidden, "the request comes from another site's page")
		case r.Method == http.MethodPost && isFormRequest(r):
			writeRefusal(w, http.StatusUnsupportedMediaType, "want Content-Type: application/json")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// private are endings of names that public DNS does not hold.
var private = []string{".local", ".internal", ".svc", ".lan", ".home.arpa", ".test"}

// isKnown is whether a request's Host is a name that no stranger can have lead here: an address, one of Hosts, localhost or this machine's
// name; beyond loopback also a name without a dot or a private name. On loopback such a name is nobody's need, and whoever answers names in
// a network that the machine visits may lead it here.
func (g Rules) isKnown(r *http.Request) bool {
	host := HostName(r.Host)
	switch {
	case net.ParseIP(host) != nil, host == "localhost", strings.HasSuffix(host, ".localhost"),
		slices.ContainsFunc(g.Hosts, func(h string) bool { return strings.EqualFold(h, host) }):
		return true
	case host == "":
		return false
	case isOnLoopback(r):
		name, err := os.Hostname()
		return err == nil && strings.EqualFold(name, host)
	}
	return !strings.Contains(host, ".") || slices.ContainsFunc(private, func(end string) bool { return strings.HasSuffix(host, end) })
}

// isOnLoopback is whether a request came to an address of loopback.
func isOnLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// HostName is the name or address of a Host header, in lower case and without its port.
func HostName(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// Foreign says whether a page of another site asks: by Sec-Fetch-Site, and by Origin, which is null where the page has none.
func Foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	origin := r.Header.Get("Origin")
	return origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host
}

// isPassedOn says whether a request has a header by which a proxy says for whom it asks.
func isPassedOn(h http.Header) bool {
	for name := range h {
		switch {
		case name == "Forwarded", name == "Via", name == "X-Real-Ip", name == "True-Client-Ip", name == "X-Client-Ip",
			strings.HasPrefix(name, "X-Forwarded-"), strings.HasSuffix(name, "-Connecting-Ip"):
			return true
		}
	}
	return false
}

// Direct says whether a request asks for this machine by a name that means it everywhere, and no proxy says that it passed it on: whoever
// asks a proxy on this machine may be anywhere. nginx, unless it is told otherwise, names the address that it asks and sets none of the
// headers; before 1.29.7 it spoke HTTP/1.0, as no browser does. A proxy that looks like a browser in everything passes, and so does nginx
// from 1.29.7 on: docs/view.md says what to set.
func Direct(r *http.Request) bool {
	if !r.ProtoAtLeast(1, 1) || isPassedOn(r.Header) {
		return false
	}
	host := HostName(r.Host)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// isFormRequest says whether a body is said to be something else than JSON, as every form says. A body of which nothing is said is no form's; a page
// that sends such a body is known by its Origin.
func isFormRequest(r *http.Request) bool {
	given := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(given)
	return given != "" && (err != nil || kind != "application/json")
}

func writeRefusal(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"detail": why}) // a client that has gone away hears nothing
}
