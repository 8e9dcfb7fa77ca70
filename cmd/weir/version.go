package main

import (
	"fmt"
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
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) {
			v, c := build(debug.ReadBuildInfo())
			fmt.Fprintf(a.out, "weir %s (%s)\n", v, c)
		},
	}
}
