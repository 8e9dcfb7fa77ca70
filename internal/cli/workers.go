package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/streams"
)

func newWorkersCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "workers", Short: "Show who works on a run: roles, versions, how far behind", Args: cobra.NoArgs,
		Long: `Workers shows the processes of a run by what they tell in its events: when each came or left, when it was last heard
of, the newest version that it applied, and how many versions that is behind the newest published. Each tells every
half minute that it is there. One that has not for 90 seconds is silent: it was killed, it froze, or it lost the broker; its
leases come back by themselves.`,
		Example: "  weir workers\n  weir workers --all\n  weir workers --every 5s -o json",
	}
	format := outputFlag(cmd)
	every := everyFlag(cmd)
	all := cmd.Flags().Bool("all", false, "also those that have left")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.lookAtRun(cmd, *every, func(ctx context.Context, s *assembly.Run, run *streams.Run, up bool) error {
			seen, err := runfolder.ReadStreams(ctx, run, time.Now())
			if err != nil {
				return err
			}
			now := newWorkersAnswer(run.Name(), up, seen, *all)
			if format.isJSON() {
				return a.printJSON(now)
			}
			return now.printWorkers(a.out, terminalColumns(a.out))
		})
	}
	return cmd
}

// workersAnswer lists the workers of a run.
type workersAnswer struct {
	Run string    `json:"run"`
	Up  bool      `json:"up"`
	At  time.Time `json:"at"`
	// NewestVersion is nil where no weights are published.
	NewestVersion *int64      `json:"newest_version,omitempty"`
	Workers       []workerRow `json:"workers"`
	// Left counts the workers that have left and are not listed.
	Left int `json:"left"`
}

// workerRow is a process of the run.
type workerRow struct {
	runfolder.Worker
	// Behind is how many versions its newest is behind; nil where it tells of none.
	Behind *int64 `json:"behind,omitempty"`
}

func newWorkersAnswer(run string, up bool, seen *runfolder.Streams, all bool) *workersAnswer {
	out := &workersAnswer{Run: run, Up: up, At: seen.At, NewestVersion: seen.Newest, Workers: []workerRow{}}
	for _, w := range seen.Workers {
		if w.State == runfolder.WorkerLeft && !all {
			out.Left++
			continue
		}
		row := workerRow{Worker: w}
		if w.Version != nil && seen.Newest != nil {
			behind := max(0, *seen.Newest-*w.Version)
			row.Behind = &behind
		}
		out.Workers = append(out.Workers, row)
	}
	return out
}

func (o *workersAnswer) printWorkers(w io.Writer, width int) error {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	foldColumn(t, width, 2, len("inference  silent  10m10s ago  10m10s ago  100  100")+20)
	t.AppendHeader(table.Row{"role", "worker", "state", "since", "last heard", "version", "behind"})
	ago := func(at time.Time) string { return max(0, o.At.Sub(at)).Round(time.Second).String() + " ago" }
	for _, r := range o.Workers {
		version, behind := "-", "-"
		if r.Version != nil {
			version = fmt.Sprint(*r.Version)
		}
		if r.Behind != nil {
			behind = fmt.Sprint(*r.Behind)
		}
		t.AppendRow(table.Row{report.Plain(r.Role), report.Plain(r.Name), r.State, ago(r.Since), ago(r.Heard), version, behind})
	}
	t.Render()
	var err error
	if o.Left > 0 {
		_, err = fmt.Fprintf(w, "%d have left: weir workers --all lists them\n", o.Left)
	}
	if !o.Up {
		_, down := fmt.Fprintln(w, "the run is not up: this is what its events told last")
		err = cmp.Or(err, down)
	}
	return err
}
