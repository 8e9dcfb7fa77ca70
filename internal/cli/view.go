package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/view"
)

func newViewCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view [run or folder]...", Short: "Look at runs on a web page: live, finished, several at once",
		Long: `View serves a page about runs: how each goes and what holds it back, where every ticket went, and any trajectory down
to its tokens. It reads the runs' folders, and their brokers where those are up, so it works on a run that goes on, on
one that is over, and on one that was killed. Without arguments it shows every run in run.dir, those that begin later
too, and the run that run.name names. weir up and weir trainer serve the page of their own run by themselves.

The page is served on view.listen. Beyond loopback it asks for the token that is printed, or that view.token_file
holds; on loopback only what changes something, or opens tasks and tools, does.`,
		Example: "  weir view\n  weir view demo other\n  weir view runs/demo /mnt/old/runs/demo\n  weir view --broker.url nats://broker:4222 --run.name mine",
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.openProcess(cmd)
			if err != nil {
				return err
			}
			runs, err := s.Viewer().Runs(args)
			if err != nil {
				return err
			}
			_, fixed := s.Origins["view.listen"]
			deps := view.Deps{Runs: runs, Log: s.Log}
			if len(args) == 0 {
				deps.More = s.Viewer().More
			}
			server, err := view.Listen(s.Config.View, deps, !fixed)
			if err != nil {
				return err
			}
			if server.URL() == "" {
				return fault.Usage(errors.New("view.listen is empty: name an address, such as 127.0.0.1:8686"))
			}
			var names []string
			for _, r := range runs {
				names = append(names, r.Name)
			}
			fmt.Fprintf(a.out, "%s on %s\n", strings.Join(names, ", "), server.URL())
			return server.Run(cmd.Context())
		},
	}
}
