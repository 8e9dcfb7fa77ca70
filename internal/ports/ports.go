// Package ports reserves loopback ports for servers that are stopped and started again.
package ports

// Port is a loopback port that is reserved until Release.
type Port struct {
	// Address is its host:port. Nothing else listens there.
	Address string

	release func() error
}

// Reserve finds a port on which nothing listens. Between its server's end and the next start nobody else gets it from the kernel:
// neither a listener that asks for any port, nor a connection for its own end, which would else connect to itself while the
// server is away. On systems other than Linux the port is only found, and not kept.
func Reserve() (*Port, error) { return reservePort() }

// Release gives the port back.
func (p *Port) Release() error { return p.release() }
