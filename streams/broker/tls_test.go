package broker_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// authority signs certificates for loopback.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// sign makes a certificate and its key, and the configuration of a side that shows it and trusts the authority.
func (a *authority) sign(t *testing.T, name string) streams.TLSConfig {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	a.write(t, name+".pem", "CERTIFICATE", der)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	a.write(t, name+".key", "EC PRIVATE KEY", private)
	return streams.TLSConfig{
		CA: filepath.Join(a.dir, "ca.pem"), Cert: filepath.Join(a.dir, name+".pem"), Key: filepath.Join(a.dir, name+".key"),
	}
}

func TestTLSBothWays(t *testing.T) {
	ca := newAuthority(t)
	config := streamtest.Config(t)
	config.TLS = ca.sign(t, "server")
	config.KeysDir, config.KeysRuns = filepath.Join(t.TempDir(), "keys"), []string{"test"}
	broker := streamtest.StartIn(t, config)
	admin := streams.ConnectConfig{URL: broker.URL(), Role: streams.RoleAdmin, SeedFile: filepath.Join(config.KeysDir, "admin.seed")}
	admin.TLS = ca.sign(t, "client")
	r := streamtest.Open(t, streamtest.Connect(t, admin))
	require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(1, 0, 10, 0)))
	require.NotNil(t, streamtest.Connect(t, streams.ConnectConfig{Broker: broker, Role: streams.RoleAdmin}), "in process it needs none")

	for name, wrong := range map[string]streams.TLSConfig{
		"without a certificate":      {CA: admin.TLS.CA},
		"from another authority":     newAuthority(t).sign(t, "client"),
		"without TLS":                {},
		"trusting another authority": {CA: newAuthority(t).sign(t, "x").CA, Cert: admin.TLS.Cert, Key: admin.TLS.Key},
	} {
		t.Run(name, func(t *testing.T) {
			retried := name == "without a certificate" // there the broker hangs up after the handshake
			patience := time.Minute
			if retried {
				patience = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c := admin
			c.TLS = wrong
			_, err := streams.Connect(ctx, c, nil)
			require.Error(t, err)
			if !retried {
				require.NoError(t, ctx.Err(), "it is known at once")
			}
		})
	}
	_, err := streams.Connect(t.Context(), streams.ConnectConfig{URL: broker.URL(), TLS: streams.TLSConfig{CA: filepath.Join(ca.dir, "server.key")}}, nil)
	require.ErrorContains(t, err, "holds no certificate")
}
