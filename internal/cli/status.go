package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

func newStatusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show how a run stands, from its broker", Args: cobra.NoArgs,
		Long: `Status shows how a run stands by what its streams hold. Refused are the messages in REJECTED, which weir inspect
rejected lists; dropped are trajectories that were in order and whose group could not be used, because all its rewards
were equal, say: weir audit counts them.`,
		Example: "  weir status\n  weir status --run.name mine --broker.url nats://broker:4222 --follow",
	}
	engines := enginesFlag(cmd)
	follow := cmd.Flags().Bool("follow", false, "then print events as they come")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
		defer cancel()
		named, noted := s.Config.Broker.URL != "", assembly.NotedBroker(s.Config.Folder())
		run, up, leave, err := s.Connector().Visit(ctx, streams.RoleViewer)
		if err != nil {
			return a.explainNoStatus(s, named, noted, err)
		}
		defer leave()
		now, err := readStatus(ctx, s, run, up)
		if err != nil {
			return err
		}
		readCalls(ctx, s.Log, &now.Scale, *engines)
		if format.isJSON() {
			err = a.printJSON(now)
		} else {
			now.printStanding(a.out, terminalColumns(a.out))
		}
		if err != nil || !*follow {
			return err
		}
		if !up {
			fmt.Fprintln(a.err, "no event follows: the run is not up")
			return nil
		}
		err = run.FollowEvents(cmd.Context(), streams.EventsFromNow, func(e *schemas.Event) {
			switch {
			case e.Type == schemas.EventWorkerHere: // weir workers lists the workers
			case format.isJSON():
				_ = a.printJSON(newEventAnswer(e)) // an output that is gone ends the process
			default:
				fmt.Fprintln(a.out, report.EventLine(e))
			}
		})
		return cmp.Or(err, interruptedError(cmd.Context(), nil))
	}
	return cmd
}

func newHealthcheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "healthcheck URL", Short: "Exit 0 if a role's /readyz answers 200: for images with no shell", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], http.NoBody)
			if err != nil || req.URL.Host == "" {
				return fault.Usagef("%s is not the address of a role: want one such as http://127.0.0.1:9090/readyz", args[0])
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return fmt.Errorf("no role answers: %w: does it run, with this address as its telemetry.listen?", err)
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10)) // it only explains the status
				return fmt.Errorf("%s: %s: %s", args[0], res.Status, body)
			}
			return nil
		},
	}
}
