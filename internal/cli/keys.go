package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

func newKeysCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Make the roles' keys; print their rights as NATS configuration", Args: cobra.NoArgs,
		Long: `Keys makes a key for each role that has none in the folder: <role>.seed is private and goes to that role's processes
(--broker.seed_file), <role>.pub is the broker's. It prints the accounts block for a NATS server that is not
embedded; weir broker --broker.keys_dir takes the folder itself. With --seeds the seed of each role but admin is
also put into a folder of its own, to be mounted by that role's processes alone. With --torch it writes one file instead:
the secret by which ranks on several machines know each other.`,
		Example: "  weir keys --dir keys --broker.keys_runs demo,mine > auth.conf",
	}
	dir := cmd.Flags().String("dir", "keys", "the folder of the keys")
	seeds := cmd.Flags().String("seeds", "", "put each role's seed into a folder <role> below this one as well")
	ranks := cmd.Flags().String("torch", "", "make just the secret of torch.secret_file and weir torch-worker")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *ranks != "" {
			return torch.WriteSecret(*ranks)
		}
		cfg, _, err := a.loadConfig(cmd)
		if err != nil {
			return err
		}
		keys, err := broker.CreateKeys(*dir, assembly.KeysRuns(cfg)...)
		if err != nil {
			return err
		}
		if *seeds != "" {
			if err := handOut(keys, *seeds); err != nil {
				return err
			}
		}
		text, err := keys.ServerConfig()
		if err != nil {
			return err
		}
		if format.isJSON() {
			return a.printJSON(keysAnswer(keys, text))
		}
		_, err = fmt.Fprint(a.out, text)
		return err
	}
	return cmd
}

// handOut copies the seed of each role but admin to a folder of its own: dir/<role>/<role>.seed.
func handOut(keys *broker.KeyRing, dir string) error {
	for role := range keys.Public {
		if role == streams.RoleAdmin {
			continue // the administrator looks into the folder of all keys
		}
		own := filepath.Join(dir, string(role))
		seed, err := os.ReadFile(keys.SeedFile(role))
		if errors.Is(err, fs.ErrNotExist) {
			continue // its owner keeps the seed elsewhere
		}
		if err == nil {
			err = os.MkdirAll(own, 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(own, filepath.Base(keys.SeedFile(role))), seed, 0o600)
		}
		if err != nil {
			return fmt.Errorf("hand out the seed of %s: %w", role, err)
		}
	}
	return nil
}

// roleKey is a role's key in the JSON of keys.
type roleKey struct {
	Role       streams.Role `json:"role"`
	SeedFile   string       `json:"seed_file"`
	PublicKeys []string     `json:"public_keys"`
}

// keysAnswer is the JSON answer of weir keys: no seed, which is private, but where each is.
func keysAnswer(keys *broker.KeyRing, authorization string) any {
	answer := struct {
		Runs          []string  `json:"runs"`
		Roles         []roleKey `json:"roles"`
		Authorization string    `json:"authorization"`
	}{Runs: keys.Runs, Authorization: authorization}
	for _, role := range slices.Sorted(maps.Keys(keys.Public)) {
		answer.Roles = append(answer.Roles, roleKey{role, keys.SeedFile(role), keys.Public[role]})
	}
	return answer
}
