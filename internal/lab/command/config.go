package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-rl/weir/internal/config"
)

// sectionTasks is the flag that lists the tasks to train on.
const sectionTasks = "tasks"

// addConfigFlags gives a command the flag --config, and a hidden flag for every configuration key.
func (l *lab) addConfigFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&l.files, "config", nil, "a YAML file; may be given again, later ones win")
	reference := config.Reference(l.doors)
	values := config.Values(reference)
	for _, key := range append(config.Keys(reference), sectionTasks) {
		if strings.HasSuffix(key, ".*") {
			continue // a file can set the key
		}
		flags.String(key, "", "a configuration key: weir config explain "+key)
		flag := flags.Lookup(key)
		flag.Hidden = true
		flag.Annotations = map[string][]string{configKey: nil}
		if _, isBool := values[key].(bool); isBool {
			flag.NoOptDefVal = "true"
		}
	}
}

// configKey annotates the flag of a configuration key.
const configKey = "weir-configuration-key"

// configSources are the places of the configuration that the command line names.
func (l *lab) configSources(cmd *cobra.Command) config.Sources {
	keys := map[string]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, isKey := f.Annotations[configKey]; isKey {
			keys[f.Name] = f.Value.String()
		}
	})
	return config.Sources{Files: l.files, Environ: l.environ, Flags: keys}
}

// resolveConfig reads the sources over the defaults and checks the result.
func (l *lab) resolveConfig(from config.Sources) (*config.Config, error) {
	cfg, origins, err := config.Resolve(l.doors, from)
	if err == nil {
		err = config.Trace(cfg.Finish(), origins)
	}
	if err != nil {
		return nil, config.Invalid(fmt.Errorf("configuration:\n%w", err))
	}
	return cfg, nil
}

// withoutKeys is an environment without Weir's configuration keys: a process that reads a complete file must not read them again.
func withoutKeys(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, config.Prefix) })
}
