package broker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/weir-rl/weir/streams"
)

// KeyRing holds the public nkeys that may connect to a broker, by role. The private key of a role, its seed, is a file of its own, for
// the processes of that role only.
type KeyRing struct {
	// Runs are the runs that the roles may work in. The admin may do everything.
	Runs []string
	// Public maps a role to its user nkeys ("U..."). A role without a key cannot connect.
	Public map[streams.Role][]string

	dir string
	// secret lets a broker join the others of its cluster; "" where the directory holds none.
	secret string
}

// The files of a key directory: "<role>.seed", private, "<role>.pub", a public key on each line, and the secret that the
// brokers of a cluster share.
const (
	seedSuffix   = ".seed"
	publicSuffix = ".pub"
	secretFile   = "cluster.secret"
)

// CreateKeys makes the keys that the directory lacks, a key for each role, and reads all keys. It changes no key that is there, so that
// it may be called at every start.
func CreateKeys(dir string, runs ...string) (*KeyRing, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create keys: %w", err)
	}
	for _, role := range streams.Roles() {
		if err := createKey(dir, role); err != nil {
			return nil, fmt.Errorf("create key of %s: %w", role, err)
		}
	}
	if err := createSecret(dir); err != nil {
		return nil, fmt.Errorf("create %s: %w", secretFile, err)
	}
	return LoadKeys(dir, runs...)
}

func createSecret(dir string) error {
	path := filepath.Join(dir, secretFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(rand.Text()+rand.Text()+"\n"), 0o600)
}

func createKey(dir string, role streams.Role) error {
	public := filepath.Join(dir, string(role)+publicSuffix)
	if _, err := os.Stat(public); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return err
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	if err != nil {
		return err
	}
	key, err := pair.PublicKey()
	if err != nil {
		return err
	}
	// The seed is written first: a public key without its seed would never be made again.
	if err := os.WriteFile(filepath.Join(dir, string(role)+seedSuffix), append(seed, '\n'), 0o600); err != nil {
		return err
	}
	return os.WriteFile(public, []byte(key+"\n"), 0o644)
}

// LoadKeys reads the public keys of a directory. A role whose file is absent cannot connect.
func LoadKeys(dir string, runs ...string) (*KeyRing, error) {
	k := &KeyRing{Runs: runs, Public: make(map[streams.Role][]string), dir: dir}
	for _, role := range streams.Roles() {
		text, err := os.ReadFile(filepath.Join(dir, string(role)+publicSuffix))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("load keys: %w", err)
		}
		k.Public[role] = strings.Fields(string(text))
	}
	secret, err := os.ReadFile(filepath.Join(dir, secretFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("load keys: %w", err)
	}
	k.secret = strings.TrimSpace(string(secret))
	if err == nil && len(k.secret) < 32 {
		return nil, fmt.Errorf("load keys: %s: %d bytes: the secret of a cluster must have at least 32",
			filepath.Join(dir, secretFile), len(k.secret))
	}
	return k, k.Validate()
}

// SeedFile is the file with the private key of a role, "" where the key ring was not read from a directory.
func (k *KeyRing) SeedFile(role streams.Role) string {
	if k.dir == "" {
		return ""
	}
	return SeedFile(k.dir, role)
}

// SeedFile is the file with the private key of a role in a key directory, whether or not it is there.
func SeedFile(dir string, role streams.Role) string {
	return filepath.Join(dir, string(role)+seedSuffix)
}

// Validate reports every fault of the key ring.
func (k *KeyRing) Validate() error {
	var faults []error
	if len(k.Runs) == 0 {
		faults = append(faults, errors.New("keys: runs: must name the runs that the roles may work in"))
	}
	for _, run := range k.Runs {
		if err := streams.CheckRunName(run); err != nil {
			faults = append(faults, fmt.Errorf("keys: runs: %w", err))
		}
	}
	if len(k.Public) == 0 {
		faults = append(faults, errors.New("keys: no public key of any role"))
	}
	seen := make(map[string]streams.Role)
	for _, role := range slices.Sorted(maps.Keys(k.Public)) {
		if !slices.Contains(streams.Roles(), role) {
			faults = append(faults, fmt.Errorf("keys: %q: no such role", role))
		}
		for _, key := range k.Public[role] {
			if !nkeys.IsValidPublicUserKey(key) {
				faults = append(faults, fmt.Errorf("keys: %s: %q: no public user nkey", role, key))
			}
			if other, ok := seen[key]; ok {
				faults = append(faults, fmt.Errorf("keys: %s: key is also that of %s", role, other))
			}
			seen[key] = role
		}
	}
	return errors.Join(faults...)
}
