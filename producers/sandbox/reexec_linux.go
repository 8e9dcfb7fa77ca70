//go:build amd64 || arm64

package sandbox

import (
	"os"
	"strings"
)

// The names under which this program starts itself again.
const (
	keeperName = "weir-sandbox-keeper"
	stageName  = "weir-sandbox-exec"
	doorName   = "weir-sandbox-door" // the first argument: bwrap starts a program by its path
)

// A program that links this package becomes a keeper, or the stage before a program without namespaces, when it is started
// under their names. It is an init and not a call in main because tests and programs of users start sandboxes too.
func init() {
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case keeperName:
		os.Exit(keeperMain())
	case stageName:
		os.Exit(stageMain())
	}
	if len(os.Args) > doorArgs && os.Args[1] == doorName && strings.HasPrefix(os.Args[0], doorFolder) {
		os.Exit(doorMain())
	}
}
