package deploy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// The server of deploy/nats/nats.conf, with the keys that weir keys makes: each role is let in over TLS, the admin
// opens a run, the trainer works in it and may not make streams.
func TestExternalServerTakesTheRoles(t *testing.T) {
	dir := t.TempDir()
	conf, err := os.ReadFile(filepath.Join("nats", "nats.conf"))
	require.NoError(t, err)
	keys, err := broker.CreateKeys(filepath.Join(dir, "keys"), "demo")
	require.NoError(t, err)
	auth, err := keys.ServerConfig()
	require.NoError(t, err)
	writeCertificate(t, dir)
	for name, text := range map[string]string{"nats.conf": string(conf), "auth.conf": auth} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir) // the paths in the file are relative

	o, err := server.ProcessConfigFile("nats.conf")
	require.NoError(t, err)
	own := broker.DefaultConfig()
	require.Equal(t, own.SyncAlways, o.SyncAlways)
	require.EqualValues(t, own.MaxPayload, o.MaxPayload)
	require.Equal(t, own.MaxBufferedBytes, o.StreamMaxBufferedSize)
	o.Host, o.Port, o.HTTPPort, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, 0, true, true
	s, err := server.NewServer(o)
	require.NoError(t, err)
	go s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	require.True(t, s.ReadyForConnections(2*time.Minute))

	connect := func(role streams.Role) *streams.Conn {
		conn, err := streams.Connect(t.Context(), streams.ConnectConfig{
			URL: "tls://" + s.Addr().String(), Role: role, SeedFile: keys.SeedFile(role), TLS: streams.TLSConfig{CA: "server.pem"},
		}, nil)
		require.NoError(t, err, role)
		t.Cleanup(conn.Close)
		return conn
	}
	_, err = connect(streams.RoleAdmin).Open(t.Context(), "demo", streams.DefaultTopology())
	require.NoError(t, err)
	for _, role := range streams.Roles() {
		_, err := connect(role).Attach(t.Context(), "demo")
		require.NoError(t, err, role)
	}
	_, err = connect(streams.RoleTrainer).Open(t.Context(), "demo", streams.Topology{
		MaxTickets: 8, MaxTrajectories: 8, MaxTrajectoryBytes: 1 << 20, Lease: time.Minute, MaxDeliver: 2, DedupeWindow: time.Minute,
		RejectedMaxAge: time.Hour, RejectedMaxBytes: 1 << 20, EventsMaxAge: time.Hour, WeightsKeep: 2, Replicas: 1,
	})
	require.ErrorIs(t, err, streams.ErrDenied)
}

// Defect F3: routes of the sample cluster block ask for a password and for certificates that both sides check.
func TestTheSampleClusterIsClosed(t *testing.T) {
	dir := t.TempDir()
	conf, err := os.ReadFile(filepath.Join("nats", "nats.conf"))
	require.NoError(t, err)
	_, block, found := strings.Cut(string(conf), "# cluster {\n")
	require.True(t, found)
	block = "cluster {\n" + regexp.MustCompile(`(?m)^# ?`).ReplaceAllString(block, "")
	writeCertificate(t, dir)
	server1, err := os.ReadFile(filepath.Join(dir, "server.pem"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), server1, 0o600))
	t.Chdir(dir)
	o := &server.Options{}
	require.NoError(t, o.ProcessConfigString(block))
	require.NotEmpty(t, o.Cluster.Username)
	require.Equal(t, "SECRET", o.Cluster.Password)
	require.Equal(t, tls.RequireAndVerifyClientCert, o.Cluster.TLSConfig.ClientAuth)
	require.NotNil(t, o.Cluster.TLSConfig.ClientCAs)
	require.Len(t, o.Routes, 3)
	for _, r := range o.Routes {
		password, _ := r.User.Password()
		require.Equal(t, o.Cluster.Password, password)
	}
}

// writeCertificate makes a certificate of 127.0.0.1 that vouches for itself.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{
		"server.pem": {Type: "CERTIFICATE", Bytes: der}, "server-key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}
