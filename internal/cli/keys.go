package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

func (a *app) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Make the roles' keys, and print their rights as NATS configuration", Args: cobra.NoArgs,
		Long: `Keys makes a key for each role that has none in the folder: <role>.seed is private and goes to that role's processes
(--broker.seed_file), <role>.pub is the broker's. It prints the accounts block for a NATS server that is not
embedded; weir broker --broker.keys_dir takes the folder itself.`,
		Example: "  weir keys --dir keys --broker.keys_runs demo,mine > auth.conf",
	}
	dir := cmd.Flags().String("dir", "keys", "the folder of the keys")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := a.load(cmd)
		if err != nil {
			return err
		}
		keys, err := broker.CreateKeys(*dir, keysRuns(cfg)...)
		if err != nil {
			return err
		}
		text, err := keys.ServerConfig()
		if err != nil {
			return err
		}
		if format.json() {
			return a.printJSON(keysAnswer(keys, text))
		}
		_, err = fmt.Fprint(a.out, text)
		return err
	}
	return cmd
}

// roleKey is a role's key in the JSON of keys.
type roleKey struct {
	Role       streams.Role `json:"role"`
	SeedFile   string       `json:"seed_file"`
	PublicKeys []string     `json:"public_keys"`
}

// keysAnswer is what keys prints as JSON: no seed, which is private, but where each is.
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

// keysRuns are the runs that keys are for: the configured ones and this one.
func keysRuns(cfg *config.Config) []string {
	runs := cfg.Broker.KeysRuns
	if !slices.Contains(runs, cfg.Run.Name) {
		runs = append(slices.Clone(runs), cfg.Run.Name)
	}
	return runs
}
