package streams

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSConfig names PEM files. The zero value is no TLS.
type TLSConfig struct {
	// CA verifies the other side. On a broker it makes clients show a certificate; on a client "" trusts the
	// system's authorities.
	CA string `koanf:"ca"`
	// Cert and Key are this side's certificate and private key: both or neither.
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// Enabled is whether TLS is used.
func (c TLSConfig) Enabled() bool { return c.Cert != "" || c.CA != "" }

// Mutual is whether both sides can show and check a certificate.
func (c TLSConfig) Mutual() bool { return c.CA != "" && c.Cert != "" && c.Key != "" }

// Faults are the faults of the configuration, each with its key below section.
func (c TLSConfig) Faults(section string) []error {
	var faults []error
	if (c.Cert == "") != (c.Key == "") {
		faults = append(faults, fmt.Errorf("%s: cert and key must be set together", section))
	}
	return faults
}

// Server is the configuration of a side that listens.
func (c TLSConfig) Server() (*tls.Config, error) {
	if c.Cert == "" {
		return nil, errors.New("configure TLS: tls.cert and tls.key must be set")
	}
	t, err := c.clientConfig()
	if err != nil {
		return nil, err
	}
	if c.CA != "" {
		t.ClientCAs, t.ClientAuth = t.RootCAs, tls.RequireAndVerifyClientCert
	}
	return t, nil
}

func (c TLSConfig) clientConfig() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("load TLS certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("read TLS authority: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read TLS authority: %s holds no certificate", c.CA)
		}
	}
	return t, nil
}
