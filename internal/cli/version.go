package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by the linker.
var version, commit string

// build names this build: as the linker was told, else as Go noted it from the module or the checkout.
func build(info *debug.BuildInfo, ok bool) (v, c string) {
	v, c = "dev", "unknown"
	if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v = info.Main.Version
	}
	if ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				c = s.Value
			}
		}
	}
	if version != "" {
		v = version
	}
	if commit != "" {
		c = commit
	}
	return v, c
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs}
	format := outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		v, c := build(debug.ReadBuildInfo())
		if format.json() {
			return a.printJSON(struct {
				Version string `json:"version"`
				Commit  string `json:"commit"`
				Go      string `json:"go"`
			}{v, c, runtime.Version()})
		}
		_, err := fmt.Fprintln(a.out, "weir", versionText(v, c))
		return err
	}
	return cmd
}

// versionText names a build to people.
func versionText(version, commit string) string { return fmt.Sprintf("%s (%s)", version, commit) }
