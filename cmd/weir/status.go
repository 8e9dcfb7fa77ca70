package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

func (a *app) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show how a run stands, from its broker", Args: cobra.NoArgs,
		Example: "  weir status\n  weir status --run.name mine --broker.url nats://broker:4222 --follow",
	}
	follow := cmd.Flags().Bool("follow", false, "then print events as they come")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.session(cmd)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
		defer cancel()
		run, up, leave, err := s.visit(ctx, streams.RoleViewer)
		if err != nil {
			return err
		}
		defer leave()
		if err := s.printStatus(ctx, run, up); err != nil {
			return err
		}
		if !*follow || !up {
			return nil
		}
		return run.FollowEvents(cmd.Context(), streams.EventsFromNow, func(e *schemas.Event) {
			fmt.Fprintf(a.out, "%s %-18s %-10s version %d %s\n", e.At.Local().Format(time.TimeOnly), e.Type, e.Role, e.PolicyVersion, e.Message)
		})
	}
	return cmd
}

func (s *session) printStatus(ctx context.Context, run *streams.Run, up bool) error {
	control, err := run.Control(ctx)
	if err != nil && !errors.Is(err, streams.ErrNoControl) {
		return err
	}
	state := "running"
	if control == nil {
		control = &schemas.Control{}
		state = "no trainer has begun"
	}
	published := "none"
	if m, err := run.LatestManifest(ctx); err == nil {
		published = fmt.Sprintf("%d, %s ago", m.Version, time.Since(m.PublishedAt).Round(time.Second))
	} else if !errors.Is(err, streams.ErrNoWeights) {
		return err
	}
	counts, err := run.Counts(ctx)
	if err != nil {
		return err
	}
	switch {
	case !up:
		state = "not up: the streams in " + s.cfg.Broker.StoreDir
	case control.Draining:
		state = "draining"
	case control.Paused:
		state = "paused"
	}
	w := table.NewWriter()
	w.SetOutputMirror(s.out)
	w.SetStyle(table.StyleLight)
	w.AppendRows([]table.Row{
		{"run", run.Name()}, {"state", state}, {"policy version", control.PolicyVersion},
		{"published", published}, {"staleness bound, depth", fmt.Sprintf("%d, %d", control.Eta, control.Depth)},
		{"outstanding tickets", counts.Tickets}, {"trajectories waiting", counts.Trajectories},
		{"rejected", counts.Rejected},
	})
	w.Render()
	return nil
}

func (a *app) healthcheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "healthcheck URL", Short: "Exit 0 if a role's /readyz answers 200, for images without a shell", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], http.NoBody)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
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
