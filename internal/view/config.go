package view

import (
	"net"
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
