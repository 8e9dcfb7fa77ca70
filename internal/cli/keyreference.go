package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/parts"
)

// keyReference has the configuration keys that a command line can give.
type keyReference struct {
	args  []string       // the command line, whose sections of the user's own have keys too
	known *config.Config // has every key that there is without a configuration
	names []string       // of the keys of known, sorted
}

// newKeyReference makes the reference of the parts that a configuration can name.
func newKeyReference(doors parts.Registry, args []string) *keyReference {
	known := config.Reference(doors)
	names := slices.Sorted(slices.Values(slices.AppendSeq(config.Keys(known), maps.Keys(known.Others()))))
	return &keyReference{args: args, known: known, names: names}
}

// ownKeys are the keys on the command line that are in a section of the user's own: below tasks, agents or tools.
func (k *keyReference) ownKeys() []string {
	var out []string
	for _, arg := range k.args {
		key, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if parts := strings.SplitN(key, ".", 3); len(arg) > 2 && arg[:2] == "--" && len(parts) == 3 &&
			slices.Contains([]string{"services", sectionTasks, "agents", "tools"}, parts[0]) {
			out = append(out, key)
		}
	}
	return out
}

// likeOwn is a key of the reference that takes the same values as a key in a section of the user's own: a key that has the same name in a
// section of any type. It is the key itself where there is none.
func (k *keyReference) likeOwn(key string) string {
	own := strings.SplitN(key, ".", 3)
	for _, known := range k.names {
		if parts := strings.SplitN(known, ".", 3); len(parts) == 3 && parts[0] == own[0] && strings.TrimSuffix(parts[2], ".*") == own[2] {
			return known
		}
	}
	return key
}

// isKey reports whether a flag is a key's.
func (k *keyReference) isKey(f *pflag.Flag) bool {
	return f.Name == sectionTasks || slices.Contains(k.names, f.Name) || slices.Contains(k.names, f.Name+".*") ||
		slices.Contains(k.ownKeys(), f.Name)
}

// typedKeys are the keys that the command line gives.
func (k *keyReference) typedKeys(cmd *cobra.Command) map[string]string {
	flags := map[string]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !k.isKey(f) {
			return
		}
		entries, err := cmd.Flags().GetStringToString(f.Name)
		if err != nil {
			flags[f.Name] = f.Value.String()
			return
		}
		for k, v := range entries {
			flags[f.Name+"."+k] = v
		}
	})
	return flags
}

// completeValue gives the values that a key takes, or leaves a key that names a file or folder to the shell.
func (k *keyReference) completeValue(key, begun string) ([]string, cobra.ShellCompDirective) {
	e, err := k.known.Explain(key)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	if e.Choices == nil {
		if e.Type == "string" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(e.Choices, func(v string) bool { return !strings.HasPrefix(v, begun) }), cobra.ShellCompDirectiveNoFileComp
}

// briefMeaning is the meaning of a key or section, without its name at the head.
func (k *keyReference) briefMeaning(key string) string {
	return withoutName(key, k.known.Meaning(key))
}

// completeTopics completes keys and sections.
func (k *keyReference) completeTopics(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, key := range k.names {
		if key = strings.TrimSuffix(key, ".*"); strings.HasPrefix(key, begun) {
			out = append(out, key+"\t"+firstSentence(k.briefMeaning(key)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
