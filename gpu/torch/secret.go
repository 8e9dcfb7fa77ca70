package torch

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"
)

// secretBytes is how long a secret is.
const secretBytes = 32

// WriteSecret writes a new secret to a file, which must not be there: [Config.SecretFile] and weir torch-worker need the same.
func WriteSecret(path string) error {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write a secret: %w", err)
	}
	_, err = fmt.Fprintln(f, hex.EncodeToString(secret))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write a secret: %w", err)
	}
	return nil
}

// readSecret reads a file that WriteSecret wrote.
func readSecret(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	secret, err := hex.DecodeString(string(bytes.TrimSpace(data)))
	if err != nil || len(secret) != secretBytes {
		return nil, fmt.Errorf("%s: want %d bytes as hexadecimal digits, as weir keys --torch writes them", path, secretBytes)
	}
	return secret, nil
}

// errOtherSecret is the error of a peer that has another secret.
var errOtherSecret = errors.New("the other side has another secret: torch.secret_file and weir torch-worker --secret need the same file")

// tlsConfig sets TLS up for both sides: from the secret comes a private key, by which each side proves to the other that it has
// the secret. No other certificate is checked.
func tlsConfig(secret []byte) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "weir torch ranks", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, // VerifyConnection does
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errOtherSecret
			}
			if theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !theirs.Equal(key.Public()) {
				return errOtherSecret
			}
			return nil
		},
	}, nil
}
