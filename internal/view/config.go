package view

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/internal/check"
)

// Config says where the page is served, and to whom.
type Config struct {
	// Listen is the address of the page; "" serves none. weir up and weir trainer serve their own run there; where the port of the
	// default is in use they take any free port. An address beyond loopback needs a token. Defaults to "127.0.0.1:8686".
	Listen string `koanf:"listen"`
	// TokenFile holds the token that whoever looks must know: one line, 16 to 256 characters. "" makes a token at each start
	// and prints it within the page's address. On loopback, where hosts names nothing, only acts and chats need the token. Defaults to "".
	TokenFile string `koanf:"token_file"`
	// Hosts are the names, beside localhost and addresses, under which the page may be asked for: a request for another name
	// is refused, since a stranger's page could make it. Where there are any, reading needs the token on loopback too: a proxy asks from
	// there for whoever asks it. Defaults to none.
	Hosts []string `koanf:"hosts"`
	// Published is the port, or host:port, at which the page is reached where something hands it on, such as the port of a container: the
	// address that is printed names it. Without a port it is not known and listen is printed. It says nothing of who may look. Defaults to "".
	Published string `koanf:"published"`
}

// publishedAt are the parts of Published. The port is "" where it is not known; the host is "" where none, or every one, is named.
func (c Config) publishedAt() (host, port string, err error) {
	port = c.Published
	if strings.Contains(port, ":") {
		if host, port, err = net.SplitHostPort(port); err != nil {
			return "", "", err
		}
	}
	if n, err := strconv.Atoi(port); port != "" && (err != nil || n < 1 || n > 65535) {
		return "", "", fmt.Errorf("port %q: want 1 to 65535", port)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	return host, port, nil
}

// Unread says why nothing depends on a key of the section, beginning with the other key that says so; "" if something does.
func (c Config) Unread(key string) string {
	if key != "listen" && c.Listen == "" {
		return "listen is empty"
	}
	return ""
}

// DefaultListen is the default of Config.Listen.
const DefaultListen = "127.0.0.1:8686"

// DefaultConfig has the defaults.
func DefaultConfig() Config { return Config{Listen: DefaultListen} }

// Validate reports every fault.
func (c Config) Validate() error {
	_, _, err := net.SplitHostPort(c.Listen)
	faults := []error{check.That(c.Listen == "" || err == nil, "listen", "%q: want host:port such as 127.0.0.1:8686", c.Listen)}
	_, _, err = c.publishedAt()
	faults = append(faults, check.That(err == nil, "published", "%q: want a port, or host:port such as 127.0.0.1:8687", c.Published))
	for _, h := range c.Hosts {
		faults = append(faults, check.That(h != "" && !strings.ContainsAny(h, "/: \t"), "hosts", "%q: want the name of a host, without a port", h))
	}
	return check.All(faults...)
}

// Loopback says whether an address is reached from this machine alone.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
