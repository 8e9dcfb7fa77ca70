package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/schemas"
)

// version and commit are set by the linker.
var version, commit string

// buildVersion names this build: as the linker was told, else as Go noted it from the module or the checkout.
func buildVersion(info *debug.BuildInfo, ok bool) (v, c string) {
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

func newVersionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Long: "Version prints the build and the version of its messages; with -o json also the modules that it was built from.",
	}
	format := outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		v, c := buildVersion(debug.ReadBuildInfo())
		if format.isJSON() {
			return a.printJSON(struct {
				Version  string `json:"version"`
				Commit   string `json:"commit"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
				// Wire is the version of the messages that this build writes.
				Wire         int          `json:"wire"`
				Dependencies []dependency `json:"dependencies"`
			}{v, c, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, schemas.Version, buildModules(debug.ReadBuildInfo())})
		}
		_, err := fmt.Fprintf(a.out, "weir %s\nwire version %d, %s, %s/%s\n", versionText(v, c), schemas.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
	return cmd
}

// dependency is a module that this build holds.
type dependency struct {
	Module  string `json:"module"`
	Version string `json:"version"`
}

// buildModules are the modules of a build, as they stand after replacements.
func buildModules(info *debug.BuildInfo, ok bool) []dependency {
	out := []dependency{}
	if !ok {
		return out
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		out = append(out, dependency{m.Path, m.Version})
	}
	return out
}

// versionText names a build to people.
func versionText(version, commit string) string { return fmt.Sprintf("%s (%s)", version, commit) }
