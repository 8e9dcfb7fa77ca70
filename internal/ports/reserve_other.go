//go:build !linux

package ports

import (
	"fmt"
	"net"
)

func reservePort() (*Port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	return &Port{Address: l.Addr().String(), release: func() error { return nil }}, nil
}
