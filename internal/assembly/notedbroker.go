package assembly

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-rl/weir/internal/plainfile"
)

// NotedBroker is the broker of a run on this machine, "" if its folder does not say. A folder may come from anybody: an address of another
// machine is not followed, nor is anything but a scheme and one host, since a client of NATS splits its URL at every comma.
func NotedBroker(dir string) string {
	noted := readNoted(dir)
	u, err := url.Parse(noted)
	if err != nil || noted != u.Scheme+"://"+u.Host || strings.Contains(noted, ",") || !isThisMachine(u.Hostname()) {
		return ""
	}
	return noted
}

// readNoted is the address in a run's folder, whosever it is; "" where there is none.
func readNoted(dir string) string {
	data, err := plainfile.ReadFile(filepath.Join(dir, brokerFile), 4096)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// noBrokerError says that a run's folder leads to no broker, and how to name a broker of another machine.
func noBrokerError(run, dir string) error {
	if noted := readNoted(dir); dir != "" && noted != "" {
		return fmt.Errorf("run %s: its folder notes the broker %.80q, which is not asked: it is no address of this machine. "+
			"Name it with --broker.url if it is the run's", run, noted)
	}
	return fmt.Errorf("run %s: no broker is up on this machine; name a broker elsewhere with --broker.url", run)
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
