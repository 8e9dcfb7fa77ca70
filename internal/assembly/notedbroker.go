package assembly

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// NotedBroker is the broker of a run on this machine, "" if its folder does not say. A folder may come from anybody: an address of another
// machine is not followed, nor is anything but a scheme and one host, since a client of NATS splits its URL at every comma.
func NotedBroker(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, brokerFile))
	if err != nil {
		return ""
	}
	noted := strings.TrimSpace(string(data))
	u, err := url.Parse(noted)
	if err != nil || noted != u.Scheme+"://"+u.Host || strings.Contains(noted, ",") || !isThisMachine(u.Hostname()) {
		return ""
	}
	return noted
}

// isThisMachine is whether a host is an address or the name of this machine.
func isThisMachine(host string) bool {
	ip := net.ParseIP(host)
	if ip == nil {
		name, err := os.Hostname()
		return host == "localhost" || err == nil && host != "" && strings.EqualFold(host, name)
	}
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addresses {
		if own, ok := a.(*net.IPNet); ok && own.IP.Equal(ip) {
			return true
		}
	}
	return false
}
